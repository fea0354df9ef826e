"""The user of an open microphone against a scripted server, in virtual time."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.client.client_params import ClientParams
from harness.client.duplex_player import JOINED_S, Player, audible
from harness.client.duplex_user import DuplexUser
from harness.clocks.clock import run
from harness.events.log import EventLog
from tests import builders
from workloads.trace import Trace, Turn

TURN = builders.turn(arrival_s=1.0, output_tokens=10, reply_audio_s=3.0, network_s=0.0)
NEXT = TURN.changed(turn=1, arrival_s=None, think_s=1.5)
CUT = TURN.changed(event="interruption", event_after_s=1.0, event_s=2.0)
MURMURS = TURN.changed(event="backchannel", event_after_s=1.0, event_s=0.4)


class Script:
    """Says what a script has at given times after each `says` (turn, kind): a list of (delay, method, *args)."""

    def __init__(self, of: Callable[[Turn, str], list[tuple]]) -> None:
        self.of, self.heard = of, []
        self.loop = asyncio.get_running_loop()

    def open(self, session: int, listener: DuplexUser) -> None:
        self.listener = listener

    def close(self, session: int) -> None:
        self.heard.append((round(self.loop.time(), 6), "close"))

    def says(self, turn: Turn, kind: str, begin_s: float) -> None:
        self.heard.append((round(begin_s, 6), turn.turn, kind))
        for delay_s, method, *args in self.of(turn, kind):
            self.loop.call_at(self.loop.time() + delay_s, getattr(self.listener, method), *args)

    def playback_ack(self, session: int, reply: int, played_s: float, playing: bool, at_s: float) -> float:
        self.heard.append((round(at_s, 6), "ack", reply, round(played_s, 6), playing))
        return 0.0

    def playback_done(self, session: int, reply: int) -> None:
        self.heard.append((round(self.loop.time(), 6), "playback_done", reply))


def answered(turn: Turn, kind: str) -> list[tuple]:
    """A reply of 3 s to each turn, 0.5 s after its end."""
    return reply(turn.turn, 2.5)


def call(of: Callable[[Turn, str], list[tuple]], *turns: Turn, **params: Any) -> tuple[Script, pd.DataFrame]:
    """The server after a call of `turns`, and the log."""
    log = EventLog()
    (session,) = Trace.from_turns(turns).sessions

    async def main() -> Script:
        server = Script(of)
        await DuplexUser(session, server, log, ClientParams(**params)).run(turns[0].arrival_s or 0.0)
        return server

    server = run(main(), virtual=True)
    return server, log.events().to_pandas()


def reply(number: int, after_s: float, audio_s: float = 3.0) -> list[tuple]:
    return [
        (after_s - 0.1, "reply_begun", number),
        (after_s, "audio", number, audio_s),
        (after_s, "reply_done", number),
    ]


def speech(events: pd.DataFrame, kind: str) -> list[tuple]:
    """(begin, end, turn, label) of each stretch."""
    rows: Any = events[events["kind"] == kind]
    # In the order of the log
    return [(round(r.t - r.value, 6), round(r.t, 6), r.turn, r.stage) for r in rows.itertuples()]


def times(events: pd.DataFrame, kind: str) -> list[float]:
    return [round(t, 6) for t in events["t"][events["kind"] == kind]]


def says(server: Script) -> list[tuple]:
    return [each for each in server.heard if len(each) == 3 and isinstance(each[1], int)]


def test_a_turn_is_answered_heard_out_and_thought_about():
    server, events = call(answered, TURN, NEXT)
    assert says(server) == [(1.0, 0, "turn"), (8.0, 1, "turn")]  # 1 + 2.5 + 3 s of reply + 1.5 s of thinking
    assert speech(events, "user_speech") == [(1.0, 3.0, 0, "turn"), (8.0, 10.0, 1, "turn")]
    assert speech(events, "agent_speech") == [(3.5, 6.5, 0, "0"), (10.5, 13.5, 1, "1")]
    assert times(events, "playback_done") == times(events, "turn_done") == [6.5, 13.5]
    reports = events[events["kind"] == "told"]
    assert reports["stage"].tolist() == ["reply_begun", "first_packet"] * 2
    assert reports["value"].tolist() == [0, 0, 1, 1]


def test_the_network_delays_sound_on_its_way_in_and_reports_on_their_way_out():
    """The reply is heard out at 6.5 s without a network. Each way takes 0.25 s more."""
    server, events = call(answered, TURN.changed(network_s=0.25))
    assert times(events, "playback_done") == [7.0]
    assert [each[0] for each in server.heard if each[1:2] == ("playback_done",)] == [7.25]


def test_a_pause_makes_two_stretches_and_what_cuts_into_it_is_heard():
    paused = TURN.changed(pause_after_s=0.5, pause_s=1.0)
    script = [(1.0, "audio", 0, 0.8), (1.7, "stopped", 0), *reply(1, 2.5)]
    _, events = call(lambda t, _: script, paused)
    assert speech(events, "user_speech") == [(1.0, 1.5, 0, "turn"), (2.5, 3.0, 0, "turn")]
    assert speech(events, "agent_speech") == [(2.0, 2.7, 0, "0"), (3.5, 6.5, 0, "1")]
    assert times(events, "audio") == [3.5], "the turn's reply is the one that answers it"
    assert times(events, "barge_in") == [] and times(events, "turn_done") == [6.5]


def test_an_interruption_goes_straight_on_to_the_next_turn():
    def of(turn: Turn, kind: str) -> list[tuple]:
        return reply(0, 2.5) if turn.turn == 0 else [(0.4, "stopped", 0), *reply(1, 2.5)]

    server, events = call(of, CUT, NEXT)
    assert says(server) == [(1.0, 0, "turn"), (4.5, 1, "turn")]
    assert speech(events, "user_speech")[1] == (4.5, 6.5, 1, "interruption")
    assert speech(events, "agent_speech") == [(3.5, 4.9, 0, "0"), (7.0, 10.0, 1, "1")]
    heard = events[events["kind"] == "barge_in"]
    assert heard["turn"].tolist() == [0] and heard["value"].tolist() == pytest.approx([1.4])
    assert times(events, "turn_done") == [4.5, 10.0]


def test_a_server_that_does_not_stop_is_heard_over_the_interruption():
    _, events = call(answered, CUT, NEXT)
    assert speech(events, "agent_speech")[0] == (3.5, 6.5, 0, "0")
    assert times(events, "playback_done") == [6.5, 10.0]
    assert times(events, "barge_in") == []


@pytest.mark.parametrize("kind", ["backchannel", "side_speech", "background_speech", "noise"])
def test_other_sounds_lie_over_the_reply(kind: str):
    server, events = call(lambda t, kind: reply(0, 2.5) if kind == "turn" else [], MURMURS.changed(event=kind))
    assert says(server) == [(1.0, 0, "turn"), (4.5, 0, kind)]
    assert speech(events, "user_speech") == [(1.0, 3.0, 0, "turn"), (4.5, 4.9, 0, kind)]
    assert speech(events, "agent_speech") == [(3.5, 6.5, 0, "0")]


def test_after_a_false_alarm_the_user_hears_the_reply_go_on():
    def resumes(turn: Turn, kind: str) -> list[tuple]:
        return reply(turn.turn * 10, 2.5) if kind == "turn" else [(0.2, "stopped", 0), *reply(1, 1.2)]

    server, events = call(resumes, MURMURS, NEXT)
    assert speech(events, "agent_speech")[:2] == [(3.5, 4.7, 0, "0"), (5.7, 8.7, 0, "1")]
    assert says(server)[2] == (10.2, 1, "turn")  # 1.5 s of thinking after 8.7 s
    assert times(events, "audio") == [3.5, 12.7], "the second reply to a turn has no first sound of its own"


def test_after_a_false_alarm_without_more_of_the_reply_the_user_waits_3_s():
    def stops(turn: Turn, kind: str) -> list[tuple]:
        return reply(0, 2.5) if kind == "turn" else [(0.2, "stopped", 0)]

    server, _ = call(stops, MURMURS, NEXT)
    assert says(server)[2] == (9.2, 1, "turn")  # it stopped at 4.7 s; 3 s of patience, 1.5 s of thinking


def test_a_correction_comes_after_the_turn_whatever_the_server_does():
    again = TURN.changed(event="correction", event_after_s=0.3, event_s=2.0)
    server, events = call(lambda t, _: [] if t.turn == 0 else reply(0, 2.5), again, NEXT)
    assert says(server) == [(1.0, 0, "turn"), (3.3, 1, "turn")]
    assert speech(events, "user_speech")[1][3] == "correction"
    cut = events[events["kind"] == "barge_in"]
    assert cut["turn"].tolist() == [0] and cut["value"].tolist() == [0.0]


def test_a_word_of_the_server_puts_off_the_next_turn():
    server, _ = call(lambda t, _: [*reply(2 * t.turn, 2.5), *reply(2 * t.turn + 1, 6.5, 1.0)], TURN, NEXT)
    assert says(server)[1] == (10.0, 1, "turn")  # 1 + 6.5 + 1 + 1.5


def test_a_lost_call_ends_in_the_middle_of_a_word():
    _, events = call(lambda t, _: [(0.5, "failed", "gone")], TURN, NEXT)
    assert times(events, "turn_failed") == [1.5] and speech(events, "user_speech") == []


def test_the_energy_of_samples_says_where_sound_is():
    """A packet of 1 s: silence, a tone from 0.25 to 0.75 s, silence."""
    rate = 8000
    tone = (8000 * np.sin(np.arange(rate // 2) * 0.3)).astype("<i2")
    silence = bytes(2 * rate)
    packet = silence[: rate // 2] + tone.tobytes() + silence[: rate // 2]
    assert audible(1.0, packet) == [(0.25, 0.75)]
    assert audible(1.0, silence) == audible(0.0, b"") == []
    player = Player()
    assert player.arrive(0, 10.0, 1.0, silence) is None
    assert player.arrive(0, 10.5, 1.0, packet) == 11.25  # it plays after the first packet, from 11 s on
    assert [(s.begin_s, s.end_s) for s in player.ended(20.0)] == [(11.25, 11.75)]


PACKETS = st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 2)), min_size=1, max_size=20)
"""Packets of a reply: the time since the packet before, and the audio, s."""


@given(packets=PACKETS, after_s=st.floats(0, 40))
def test_a_stopped_reply_is_heard_until_the_stop_for_as_long_as_it_played(packets: list, after_s: float):
    player, at_s = Player(), 0.0
    for wait_s, audio_s in packets:
        at_s += wait_s
        player.arrive(0, at_s, audio_s)
    stop_s = at_s + after_s
    played_s = player.played_s(0, stop_s)
    player.stop(0, stop_s)
    heard = list(player.ended(1e9))
    assert all(stretch.end_s <= stop_s for stretch in heard)
    assert 0 <= played_s <= sum(audio_s for _, audio_s in packets) + 1e-9
    gaps_s = sum(stretch.end_s - stretch.begin_s for stretch in heard) - played_s
    assert -1e-9 <= gaps_s <= JOINED_S * (len(packets) - 1) + 1e-9  # short gaps count as heard
