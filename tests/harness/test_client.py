"""The simulated user of turns against a scripted server, in virtual time."""

import asyncio
import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from harness.client.client_params import ClientParams
from harness.client.session import Client
from tests import builders
from tests.harness.servers import played
from workloads.trace import Trace, Turn

TURN = builders.turn(arrival_s=1.0, output_tokens=10, reply_audio_s=3.0, network_s=0.25)
NEXT = replace(TURN, turn=1, arrival_s=None, think_s=1.5)


class ScriptedServer:
    """Answers each commit with `packets`: (delay after the commit, seconds of audio), then reply_done."""

    def __init__(self, *packets: tuple[float, float], done: bool = True) -> None:
        self.packets, self.done = packets, done
        self.sends: list[tuple] = []
        self.listener: dict[int, Any] = {}
        self.loop = asyncio.get_running_loop()

    def open(self, session: int, listener: Any) -> None:
        self.listener[session] = listener
        self._note("open", session)

    def close(self, session: int) -> None:
        self._note("close", session)

    def speech_start(self, turn: Turn) -> None:
        self._note("speech_start", turn.turn)

    def commit(self, turn: Turn, end_s: float) -> None:
        self._note("commit", turn.turn)
        listener, now = self.listener[turn.session], self.loop.time()
        for delay_s, audio_s in self.packets:
            self.loop.call_at(now + delay_s, listener.audio, turn.turn, audio_s)
        if self.done:
            last = max((delay for delay, _ in self.packets), default=0.1)
            self.loop.call_at(now + last, listener.reply_done, turn.turn)

    def reports(self, session: int, turn: int, source: object) -> bool:
        return False

    def playback_ack(self, session: int, turn: int, played_s: float, playing: bool, at_s: float) -> float:
        self.loop.call_at(at_s, self._note, "ack", turn, round(played_s, 6), playing)
        return 0.0

    def playback_done(self, session: int, turn: int) -> None:
        self._note("playback_done", turn)

    def barge_in(self, session: int, heard_s: float) -> None:
        self._note("barge_in", round(heard_s, 6))

    def _note(self, *what: object) -> None:
        self.sends.append((round(self.loop.time(), 6), *what))


def three_seconds() -> ScriptedServer:
    return ScriptedServer((0.5, 3.0))


def serve(
    turns: list[Turn], make: Callable[[], ScriptedServer] = three_seconds, replicas: int = 1, **params
) -> tuple[Any, list[tuple]]:
    events, server = played(Trace.from_turns(turns), make, replicas=replicas, **params)
    return events, server.sends


def users(count: int, **fields: Any) -> list[Turn]:
    return [replace(TURN, session=i, **fields) for i in range(count)]


def times(events: Any, kind: str, turn: int = 0, session: int | None = None) -> list[float]:
    found = events.query("kind == @kind and turn == @turn")
    return found["t"][found["session"].eq(session) | (session is None)].round(6).tolist()


def test_a_user_takes_memory_only_from_arrival_to_goodbye():
    """A replay of a million users runs without the collector of cycles."""
    clients = []

    class Counting(ScriptedServer):
        def open(self, session: int, listener: Any) -> None:
            super().open(session, listener)
            clients.append(sum(type(each) is Client for each in gc.get_objects()))

        def close(self, session: int) -> None:
            del self.listener[session]

    gc.collect()
    gc.disable()
    try:
        serve([replace(TURN, session=i, arrival_s=10.0 * i) for i in range(50)], lambda: Counting((0.5, 3.0)))
    finally:
        gc.enable()
    assert clients == [1] * 50


def test_users_who_come_at_once_speak_one_after_the_other_and_before_other_timers():
    class Watching(ScriptedServer):
        def __init__(self) -> None:
            super().__init__((0.5, 3.0))
            self.loop.call_at(1.0, self._note, "due at 1 s")

    _, sends = serve(users(3, network_s=0.0), Watching)
    assert [what for t, what, *_ in sends if t == 1.0] == [*3 * ["open", "speech_start"], "due at 1 s"]


def test_a_turn_takes_its_speech_and_travels_the_network_both_ways():
    events, sends = serve([TURN])
    assert times(events, "turn_start") == [1.0]
    assert times(events, "turn_end") == [3.0]
    assert (1.25, "speech_start", 0) in sends
    assert (3.25, "commit", 0) in sends
    assert times(events, "audio") == [4.0]  # 3.25 + 0.5 + 0.25
    assert times(events, "playback_done") == [7.0]
    assert sends[-1] == (7.25, "close", 0)


@pytest.mark.parametrize(("scheduled_s", "starts_s"), [(6.9, 7.0), (7.1, 7.1)])
def test_a_scheduled_turn_starts_on_schedule_but_not_before_the_previous_reply_is_heard(
    scheduled_s: float, starts_s: float
):
    """The first reply plays from 4 to 7 s."""
    events, _ = serve([TURN, replace(NEXT, think_s=None, arrival_s=scheduled_s)])
    assert times(events, "turn_start", 1) == [starts_s]


def test_a_user_interrupts_at_a_time_counted_from_the_first_sound_and_reports_what_was_heard():
    """Sound comes from 4.0 to 4.4 s and from 4.6 s on; the user interrupts 1 s after 4.0 s."""
    cut = replace(TURN, barge_in_after_s=1.0)
    events, sends = serve([cut, NEXT], lambda: ScriptedServer((0.5, 0.4), (1.1, 3.0)))
    assert times(events, "barge_in") == times(events, "turn_start", 1) == [5.0]
    assert (5.25, "barge_in", 0.8) in sends
    assert not times(events, "playback_done")
    assert not [entry for entry in sends if entry[1:3] == ("ack", 0) and entry[0] > 5.25]


@pytest.mark.parametrize(("after_s", "barged_in", "missed"), [(3.0, [7.0], []), (3.01, [], [7.0])])
def test_an_interruption_after_the_end_of_the_reply_is_missed(after_s: float, barged_in: list, missed: list):
    """The reply is heard for 3 s, from 4 to 7 s."""
    events, _ = serve([replace(TURN, barge_in_after_s=after_s)])
    assert times(events, "barge_in") == barged_in
    assert times(events, "barge_in_missed") == missed


def test_packets_without_sound_start_no_playback():
    events, sends = serve([TURN], lambda: ScriptedServer((0.5, 0.0), (1.0, 1.0), (1.2, 0.0)))
    assert times(events, "playback_done") == [5.5]  # of 1 s of sound from 3.25 + 1.0 + 0.25 s on
    assert [entry[0] for entry in sends if entry[1] == "ack"][:1] == [4.85]


def test_without_playback_a_turn_ends_with_its_last_packet():
    events, sends = serve([TURN], playback="none")
    assert times(events, "turn_done") == [4.0]
    assert not [entry for entry in sends if entry[1] == "ack"]


def test_a_reply_that_never_ends_fails_the_turn_and_the_user_hangs_up():
    events, sends = serve([TURN, NEXT], lambda: ScriptedServer((0.5, 1.0), done=False), turn_timeout_s=10.0)
    assert times(events, "turn_failed") == [16.0]  # 3.0 + 10.0 + 3.0 of speech
    assert not times(events, "turn_start", 1)
    assert sends[-1] == (16.25, "close", 0)


@pytest.mark.parametrize(
    ("params", "starts"),
    [
        ({}, [1.0, 1.0, 1.0]),
        ({"c": 2}, [1.0, 1.0, 7.25]),
        ({"c": 1}, [1.0, 7.25, 13.5]),
        ({"c": 1, "replicas": 2, "c_scope": "replica"}, [1.0, 1.0, 7.25]),
        ({"c": 1, "replicas": 2, "c_scope": "deployment"}, [1.0, 7.25, 13.5]),
    ],
)
def test_as_many_users_are_on_line_as_c_allows(params: dict[str, Any], starts: list[float]):
    events, _ = serve(users(3), **params)
    assert times(events, "session_start") == starts


def test_most_lets_users_in_as_others_leave():
    turns = [replace(each, arrival_s=1.0 + each.session) for each in users(3)]
    events, _ = serve(turns, most=2)
    assert times(events, "session_start") == [1.0, 2.0, 7.25]
    with pytest.raises(ValueError, match="leave one of them out"):
        ClientParams.model_validate({"c": 2, "most": 2})


def test_a_request_s_place_is_free_while_its_user_thinks():
    """A request lasts for 3 s here, until its reply is complete; the first user goes on at 10 s, 1.5 s late."""
    turns = [TURN, NEXT, *users(3)[1:]]
    events, _ = serve(turns, c=1, c_counts="request")
    starts = events.query("kind == 'turn_start'")[["session", "turn", "t"]].round(6)
    assert starts.to_numpy().tolist() == [[0, 0, 1.0], [1, 0, 4.0], [2, 0, 7.0], [0, 1, 10.0]]


@pytest.mark.parametrize(
    ("counts", "until", "begun_s", "sent_s"),
    [
        ("reply", "stream", [1.0, 1.0, 1.0], [3.0, 4.0, 5.0]),
        ("reply", "playback", [1.0, 1.0, 1.0], [3.0, 7.0, 11.0]),
        ("request", "stream", [1.0, 4.0, 7.0], [3.0, 6.0, 9.0]),
        ("request", "playback", [1.0, 7.0, 13.0], [3.0, 9.0, 15.0]),
    ],
)
def test_a_place_is_kept_until_the_reply_is_complete_or_heard(
    counts: str, until: str, begun_s: list[float], sent_s: list[float]
):
    """A reply comes within 1 s of its turn's end and is heard for 3 s; a user speaks for 2 s."""
    events, _ = serve(users(3), c=1, c_counts=counts, slot_until=until)
    assert times(events, "turn_start") == begun_s
    assert times(events, "turn_end") == sent_s
    assert times(events, "reply_done") == [t + 1.0 for t in sent_s]
    assert times(events, "playback_done") == [t + 4.0 for t in sent_s]


def test_a_reply_without_sound_keeps_its_place_until_it_is_complete():
    events, _ = serve(users(2), ScriptedServer, c=1, c_counts="reply", slot_until="playback")
    assert times(events, "turn_end")[1:] == times(events, "reply_done")[:1]


@pytest.mark.parametrize("until", ["stream", "playback"])
@pytest.mark.parametrize(("cut_s", "kind", "over_s"), [(1.0, "turn_done", 5.0), (None, "turn_failed", 16.0)])
def test_a_cut_or_failed_request_gives_its_place_back(until: str, cut_s: float | None, kind: str, over_s: float):
    turns = [replace(TURN, barge_in_after_s=cut_s), NEXT, replace(TURN, session=1)]
    slots = {"c": 1, "c_counts": "request", "slot_until": until}
    events, _ = serve(turns, lambda: ScriptedServer((0.5, 3.0), done=False), turn_timeout_s=10.0, **slots)
    assert times(events, kind)[0] == over_s
    assert times(events, "turn_start", session=1) == [over_s]


class LosingServer(ScriptedServer):
    """Loses its first session `after_s` seconds after it came; `refuses`: it does not let it in."""

    def __init__(self, after_s: float, refuses: bool = False) -> None:
        super().__init__((0.5, 3.0))
        self.after_s, self.refuses = after_s, refuses

    def open(self, session: int, listener: Any) -> None:
        super().open(session, listener)
        if session == 0:
            lose = listener.rejected if self.refuses else lambda: listener.failed("closed 1006")
            self.loop.call_later(self.after_s, lose)


@pytest.mark.parametrize(
    ("after_s", "last"),
    [
        (0.75, (0, 1.0, 2.0, 2.0)),  # while speaking
        (2.0, (0, 1.0, 3.0, 3.25)),  # while waiting
        # while a complete reply plays, or between turns, the next one fails as it begins
        (3.0, (1, 8.5, 8.5, 8.5)),
        (6.0, (1, 8.5, 8.5, 8.5)),
    ],
)
def test_a_lost_session_fails_a_turn_and_the_user_hangs_up(after_s: float, last: tuple[int, float, float, float]):
    """`last`: the turn that fails, and when it starts, ends and fails."""
    turn, *at_s = last
    events, sends = serve([TURN, NEXT, replace(TURN, session=1)], lambda: LosingServer(after_s))
    kinds = ("turn_start", "turn_end", "turn_failed", "turn_done")
    assert [times(events, kind, turn, session=0) for kind in kinds] == [[at_s[0]], [at_s[1]], [at_s[2]], []]
    assert not times(events, "turn_start", turn + 1, session=0)
    assert (events["kind"] == "turn_failed").sum() == 1
    assert events.query("session == 0 and kind == 'session_end'")["t"].round(6).tolist() == [at_s[2]]
    assert [entry[2] for entry in sends if entry[1] == "close"].count(0) == 1
    assert times(events, "turn_done", session=1) == [7.0]


def test_a_rejected_user_is_logged_as_shed_and_their_turn_as_failed():
    events, _ = serve([TURN, NEXT], lambda: LosingServer(0.0, refuses=True))
    assert times(events, "shed") == times(events, "turn_failed") == [1.25]
    assert not times(events, "turn_start", 1)


@pytest.mark.parametrize(
    ("stop_after_s", "c", "begun"), [(8.4, None, 2), (8.5, None, 3), (19.9, None, 3), (20.0, None, 4), (13.4, 1, 2)]
)
def test_no_turn_begins_after_the_duration_and_those_that_began_end(stop_after_s: float, c: int | None, begun: int):
    """Turns begin at 1, 5, 8.5 and 20 s; with one caller at a time at 1, 8.5, 14.75 and 21 s."""
    turns = [TURN, NEXT, replace(TURN, session=1, arrival_s=5.0), replace(TURN, session=2, arrival_s=20.0)]
    events, sends = serve(turns, stop_after_s=stop_after_s, c=c)
    assert (events["kind"] == "turn_start").sum() == begun
    assert (events["kind"] == "turn_done").sum() == begun
    assert sum(entry[1] == "open" for entry in sends) == sum(entry[1] == "close" for entry in sends)


def test_a_request_that_gets_its_place_too_late_does_not_begin():
    events, _ = serve(users(3), c=1, c_counts="request", stop_after_s=5.0)
    assert events.query("kind == 'turn_start'")["session"].tolist() == [0, 1]
