"""The user of a continuous call against a scripted server, in virtual time."""

import asyncio
import math
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.request_tables.frame_table import Beat, frame_table
from tests.harness.servers import played
from workloads.registry import make_trace
from workloads.trace import Trace, Turn

B = 2.0


class FakeServer:
    """Takes what comes, and at every tick returns each session's newest frame with `tokens` after 4 ms.

    `stalls_s`: it returns nothing from then on. `room`: sessions that it takes.
    """

    def __init__(self, room: int = 10**6, stalls_s: float = math.inf, tokens: int = 9):
        self.room, self.stalls_s, self.tokens = room, stalls_s, tokens
        self.listeners: dict[int, Any] = {}
        self.sends: list[tuple[float, str, int, int]] = []
        self.newest: dict[int, int] = {}
        self.loop = asyncio.get_running_loop()
        self.ticks = asyncio.create_task(self._tick())

    def open(self, session: int, listener: Any) -> None:
        self._note("open", session)
        if len(self.listeners) == self.room:
            listener.rejected()
        else:
            self.listeners[session] = listener
            listener.accepted()

    def append(self, turn: Turn) -> None:
        self._note("append", turn.session, turn.turn)
        self.newest[turn.session] = turn.turn

    def close(self, session: int) -> None:
        self._note("close", session)
        self.listeners.pop(session, None)

    def _note(self, verb: str, session: int, turn: int = -1) -> None:
        self.sends.append((self.loop.time(), verb, session, turn))

    async def _tick(self) -> None:
        beat = 0
        while True:
            beat += 1
            await asyncio.sleep(beat * B - self.loop.time())
            fed, self.newest = self.newest, {}
            for session, frame in fed.items():
                if session in self.listeners and self.loop.time() < self.stalls_s:
                    self.loop.call_later(0.004, self.listeners[session].frame, frame, self.tokens)


def play(trace: Trace, stop_after_s: float | None = None, **server: Any) -> tuple[Any, list]:
    """The log of a run of `trace`, and the calls that the server got: (t, verb, session, turn)."""
    events, fake = played(trace, lambda: FakeServer(**server), stop_after_s=stop_after_s)
    return events, fake.sends


def calls(**params: object) -> Trace:
    return make_trace("metronome", {"sessions": 5, "duration_s": 20, **params}, 0)


def times(events: Any, kind: str, session: int = 0) -> list[float]:
    return events.query("kind == @kind and session == @session")["t"].tolist()


@settings(max_examples=20)
@given(
    sessions=st.integers(1, 6), frame_s=st.sampled_from([0.5, 1.0, 2.0]), stalls_s=st.sampled_from([0.0, 7.0, math.inf])
)
def test_audio_is_sent_on_the_beat_whatever_the_server_does(sessions: int, frame_s: float, stalls_s: float) -> None:
    trace = calls(sessions=sessions, frame_s=frame_s)
    events, sends = play(trace, stalls_s=stalls_s)
    sent = sorted((session, turn, t) for t, verb, session, turn in sends if verb == "append")
    planned: Any = pd.DataFrame(trace.columns()).sort_values(["session", "turn"])
    assert [row[:2] for row in sent] == [*zip(planned["session"], planned["turn"], strict=True)]
    due_s = planned[["arrival_s", "audio_s", "network_s"]].sum(axis=1)
    assert [row[2] for row in sent] == pytest.approx(due_s.tolist())
    assert set(events.loc[events["kind"] == "turn_end", "value"]) == {0.0}


def test_a_call_opens_at_its_time_and_ends_two_frames_after_its_last() -> None:
    trace = calls(sessions=1)
    events, sends = play(trace)
    columns = trace.columns()
    (first_s, *_, last_s), network_s = columns["arrival_s"], columns["network_s"][0]
    assert sends[0][:3] == (pytest.approx(first_s + network_s), "open", 0)
    assert times(events, "session_start") == [first_s]
    assert times(events, "admitted") == pytest.approx([first_s + 2 * network_s])
    assert times(events, "session_end") == pytest.approx([last_s + 3 * B])
    assert sends[-1][1] == "close" and sends[-1][0] == pytest.approx(last_s + 3 * B + network_s)
    heard = events[events["kind"] == "frame"]
    assert heard["turn"].tolist() == columns["turn"].tolist() and set(heard["value"]) == {9}


def test_a_rejected_user_hangs_up_and_does_not_ask_again() -> None:
    events, sends = play(calls(), room=3)
    verbs = [[verb for _, verb, session, _ in sends if session == one] for one in range(5)]
    assert [(verb.count("open"), verb[-1]) for verb in verbs] == [(1, "close")] * 5
    assert [verb.count("append") for verb in verbs] == [9, 9, 9, 0, 0]
    kinds = events["kind"].value_counts()
    assert (kinds["session_start"], kinds["admitted"], kinds["shed"], kinds["session_end"]) == (5, 3, 2, 5)
    assert len(times(events, "turn_end", session=4)) == 0


def test_no_frame_begins_after_the_duration() -> None:
    trace = calls()
    planned: Any = pd.DataFrame(trace.columns())
    events, sends = play(trace, stop_after_s=9.0)
    begun = planned[planned["arrival_s"] <= 9.0]
    assert sum(verb == "append" for _, verb, _, _ in sends) == len(begun) < len(trace)
    ends = events[events["kind"] == "session_end"].set_index("session")["t"].sort_index()
    last_s = begun.groupby("session")["arrival_s"].max() + 3 * B
    assert ends.to_numpy() == pytest.approx(last_s.to_numpy())
    assert "failed" not in set(frame_table(events, planned, Beat(B, 1.6, 0.6))["status"])


def test_on_the_wall_clock_a_busy_machine_delays_what_is_due_then_and_nothing_after_it() -> None:
    """From 0.3 s on it is busy for 0.35 s; frames are due every 0.1 s."""
    trace = make_trace("metronome", {"sessions": 2, "duration_s": 1, "frame_s": 0.1, "network_ms": 1}, 0)
    events, _ = played(trace, FakeServer, virtual=False, held_s=(0.3, 0.35))
    sent = events[events["kind"] == "turn_end"].sort_values(["session", "turn"])
    assert len(sent) == len(trace)
    assert sent["value"].max() > 0.2
    planned: Any = pd.DataFrame(trace.columns()).sort_values(["session", "turn"])
    assert sent["t"].tolist() == (planned["arrival_s"] + planned["audio_s"]).tolist()
