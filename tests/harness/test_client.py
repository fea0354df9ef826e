"""The simulated user against a scripted server: speech in real time, playback, acks, barge-in, patience."""

import asyncio
import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def session_starts(events: Any) -> list[float]:
    return events.query("kind == 'session_start'")["t"].round(6).tolist()


def test_users_are_there_from_their_arrival_to_their_goodbye_and_no_longer():
    """A million of them would not fit, and a replay runs without the collector of cycles."""
    sessions, there = 200, []

    class Counting(ScriptedServer):
        def open(self, session: int, listener: Any) -> None:
            super().open(session, listener)
            clients = sum(type(each) is Client for each in gc.get_objects())
            there.append((clients, len(asyncio.all_tasks())))

        def close(self, session: int) -> None:
            del self.listener[session]

    turns = [replace(TURN, session=i, arrival_s=10.0 * i, network_s=0.01 * (i % 2)) for i in range(sessions)]
    gc.collect()
    gc.disable()
    try:
        serve(turns, lambda: Counting((0.5, 3.0)))
    finally:
        gc.enable()
    assert len(there) == sessions
    assert max(clients for clients, _ in there) == 1
    assert max(tasks for _, tasks in there) <= 2  # all users, and one


def test_users_of_one_instant_come_one_after_the_other_and_before_what_else_is_due():
    class Watching(ScriptedServer):
        def __init__(self) -> None:
            super().__init__((0.5, 3.0))
            self.loop.call_at(1.0, self._note, "due at 1 s")

    _, sends = serve(users(3, network_s=0.0), Watching)
    at_1_s = [what for t, *what in sends if t == 1.0]
    assert [what[0] for what in at_1_s] == [*3 * ["open", "speech_start"], "due at 1 s"]


def test_a_turn_takes_its_speech_and_travels_the_network_both_ways():
    events, sends = serve([TURN])
    assert times(events, "turn_start") == [1.0]
    assert times(events, "turn_end") == [3.0]
    assert (1.25, "speech_start", 0) in sends
    assert (3.25, "commit", 0) in sends
    assert times(events, "audio") == [4.0]  # 3.25 + 0.5 + 0.25
    assert times(events, "playback_done") == [7.0]
    assert sends[-1] == (7.25, "close", 0)


def test_a_scheduled_turn_starts_as_scheduled_but_never_into_the_previous_reply():
    early, late = (replace(NEXT, think_s=None, arrival_s=t) for t in (5.0, 20.0))
    for turn, start in ((early, 7.0), (late, 20.0)):
        events, _ = serve([TURN, turn])
        assert times(events, "turn_start", 1) == [start]


def test_playback_is_reported_every_100_ms_from_the_first_packet_to_the_end_of_the_reply():
    _, sends = serve([TURN], lambda: ScriptedServer((0.5, 0.25), (1.0, 0.07)))
    # The turn is committed at 3.25 s, and the network takes 0.25 s each way: the first packet plays from 4.0 to 4.25 s,
    # the second from 4.5 to 4.57 s. A report of 4.1 s arrives at 4.35 s.
    assert [entry for entry in sends if entry[1] == "ack"] == [
        (4.35, "ack", 0, 0.1, True),
        (4.45, "ack", 0, 0.2, True),
        (4.55, "ack", 0, 0.25, False),
        (4.65, "ack", 0, 0.25, False),
        (4.75, "ack", 0, 0.25, False),  # of the moment at which the second packet begins
    ]


def test_barge_in_is_anchored_at_the_first_audio_and_reports_what_was_heard():
    cut = replace(TURN, barge_in_after_s=1.0)
    events, sends = serve([cut, NEXT], lambda: ScriptedServer((0.5, 0.4), (1.1, 3.0)))
    assert times(events, "barge_in") == [5.0]
    assert (5.25, "barge_in", 0.8) in sends  # a gap of 0.2 s was silence
    assert times(events, "turn_start", 1) == [5.0]  # the user already speaks
    assert not times(events, "playback_done")
    assert not [entry for entry in sends if entry[1] == "ack" and entry[0] > 5.25 and entry[2] == 0]
    events, _ = serve([cut], lambda: ScriptedServer((0.5, 2.0), (1.6, 3.0)))
    assert times(events, "audio") == [4.0], "a packet behind the barge-in is not heard"


def test_a_cut_behind_the_end_is_a_missed_barge_in():
    late = replace(TURN, barge_in_after_s=3.5)
    events, _ = serve([late])
    assert times(events, "barge_in_missed") == [7.0]
    assert not times(events, "barge_in")


def test_empty_packets_start_nothing():
    events, sends = serve([TURN], lambda: ScriptedServer((0.5, 0.0), (1.0, 1.0), (1.2, 0.0)))
    assert times(events, "playback_done") == [5.5]
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
def test_open_and_closed_loop(params: dict[str, Any], starts: list[float]):
    events, _ = serve(users(3), **params)
    assert session_starts(events) == starts


def test_an_open_loop_with_a_limit_lets_users_in_as_others_leave():
    turns = [replace(each, arrival_s=1.0 + each.session) for each in users(3)]
    events, _ = serve(turns, most=2)
    assert session_starts(events) == [1.0, 2.0, 7.25]
    with pytest.raises(ValueError, match="leave one of them out"):
        ClientParams.model_validate({"c": 2, "most": 2})


def test_a_request_s_place_is_free_while_its_user_listens_and_thinks():
    turns = [TURN, NEXT, *users(3)[1:]]
    events, _ = serve(turns[:3], c=1, c_counts="request")
    assert times(events, "turn_start", 1) == [8.5]  # it is free again at 7.0: as scheduled
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


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.floats(0, 20), st.integers(1, 3), st.booleans()), min_size=1, max_size=8),
    st.integers(1, 3),
    st.sampled_from(["request", "reply"]),
    st.sampled_from(["stream", "playback"]),
)
def test_never_more_requests_at_once_than_c(sessions: list[tuple[float, int, bool]], c: int, counts: str, until: str):
    turns = []
    for i, (arrival_s, count, cuts) in enumerate(sessions):
        first = replace(TURN, session=i, arrival_s=arrival_s, barge_in_after_s=0.8 if cuts else None)
        turns += [first, *(replace(first, turn=k, arrival_s=None, think_s=0.5) for k in range(1, count))]
    events, _ = serve(turns, lambda: ScriptedServer((0.5, 1.0), (2.0, 2.0)), c=c, c_counts=counts, slot_until=until)
    over = "reply_done" if until == "stream" else "playback_done"
    open_turns, most = set(), 0
    for kind, session, turn in events[["kind", "session", "turn"]].itertuples(index=False):
        if kind == ("turn_start" if counts == "request" else "turn_end"):
            open_turns.add((session, turn))
        elif kind in (over, "barge_in"):
            open_turns.discard((session, turn))
        most = max(most, len(open_turns))
    assert most <= c
    assert not open_turns


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


def test_a_rejected_session_is_shed_and_its_turn_failed():
    events, _ = serve([TURN, NEXT], lambda: LosingServer(0.0, refuses=True))
    assert times(events, "shed") == [1.25]
    assert times(events, "turn_failed") == [1.25]
    assert not times(events, "turn_start", 1)


@pytest.mark.parametrize("c", [None, 1])
def test_no_turn_begins_after_the_duration(c: int | None):
    turns = [TURN, NEXT, replace(TURN, session=1, arrival_s=5.0), replace(TURN, session=2, arrival_s=20.0)]
    for stop_after_s, started in ((8.0, 2), (9.0, 3), (19.9, 3), (20.0, 4)):
        events, sends = serve(turns, stop_after_s=stop_after_s, c=c)
        begins = events.query("kind == 'turn_start'")["t"]
        assert (begins <= stop_after_s).all()
        if c is None:
            assert len(begins) == started
        assert (events["kind"] == "turn_done").sum() == len(begins)
        assert not (events["kind"] == "turn_failed").any()
        assert sum(entry[1] == "open" for entry in sends) == sum(entry[1] == "close" for entry in sends)


def test_a_request_that_gets_its_place_too_late_does_not_begin():
    events, _ = serve(users(3), c=1, c_counts="request", stop_after_s=5.0)
    assert events.query("kind == 'turn_start'")["session"].tolist() == [0, 1]


def test_messages_count_from_when_they_were_read():
    """Without a modelled network what is handed over takes effect at once, at the time its message was read."""
    quick = replace(TURN, network_s=0.0, barge_in_after_s=1.0)

    class Reader(ScriptedServer):
        def commit(self, turn: Turn, end_s: float) -> None:
            self._note("commit", turn.turn)
            listener, read_s = self.listener[turn.session], self.loop.time() + 0.5
            at = self.loop.call_at
            at(read_s + 0.01, listener.text, 0, 3, read_s)
            at(read_s + 0.02, listener.audio, 0, 3.0, read_s + 0.005)

    events, sends = serve([quick], Reader)
    assert times(events, "first_text") == [3.5]
    assert times(events, "audio") == [3.505]
    assert times(events, "barge_in") == [4.505]
    assert (4.505, "barge_in", 1.0) in sends
