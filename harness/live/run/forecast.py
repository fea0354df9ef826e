"""A forecast of a live run from its trace: concurrent sessions, lengths of phases, and number of turns counted.

It holds for a server that answers at once. A slower one makes its users wait, and the run longer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

import numpy as np

from harness.client.client_params import ClientParams
from harness.client.turns import by_backlog
from harness.request_tables.live_window import Window
from workloads.registry import serves
from workloads.trace import Session, Trace

TOKEN_S = 0.02
"""A text reply takes so long for each token: people read no faster. [chosen]"""
FLOOR_S, START_S = 10.0, 7.0
"""Seconds of the run against the null server, from its start on, and of the start of the load generators. [measured]"""


@dataclass(frozen=True)
class Phases:
    """Length of each phase, s: the run against the null server, the start of the load generators, and the phases of the
    run."""

    floor_s: float
    start_s: float
    ramp_s: float
    load_s: float
    drain_s: float

    @property
    def total_s(self) -> float:
        return sum(astuple(self))

    @property
    def run_s(self) -> float:
        return self.ramp_s + self.load_s + self.drain_s

    def __str__(self) -> str:
        names = ("floor", "start", "ramp", "load", "drain")
        return ", ".join(
            f"{name} {seconds:.0f} s" for name, seconds in zip(names, astuple(self), strict=True)
        )


def expected_phases(trace: Trace, client: ClientParams) -> Phases:
    """Return the expected phases, before the run."""
    arrivals_s = np.sort([_arrival_s(session) for session in _users(trace)])
    ends_s = _ends_s(trace, client)
    run_end_s = max(ends_s, default=0.0)
    end_s = run_end_s if client.stop_after_s is None else min(client.stop_after_s, run_end_s)
    ramp_s = 0.0 if client.c is None else min(end_s, float(arrivals_s[min(client.c, arrivals_s.size) - 1]))
    return Phases(FLOOR_S, START_S, ramp_s, end_s - ramp_s, run_end_s - end_s)


@dataclass(frozen=True)
class Counts:
    """Numbers of turns that a run will count: all, uninterrupted ones, and interrupted ones."""

    turns: int
    whole: int
    interrupted: int


def expected_counts(trace: Trace, client: ClientParams, wait_s: float) -> Counts:
    """Return the expected counts for a server that begins each answer `wait_s` after its turn. Calls in frames have no
    pauses, and all their frames count."""
    columns = trace.columns()
    if serves(trace) == "frames":
        return Counts(len(columns["session"]), len(columns["session"]), 0)
    users = sorted(_users(trace), key=_arrival_s)
    free_s, turns = [0.0] * (client.c or len(users)), []
    ramp_s = 0.0 if client.c is None else _arrival_s(users[min(client.c, len(users)) - 1])
    for session in users:
        begin_s = max(_arrival_s(session), heappop(free_s))
        for turn in _turns(session, begin_s, client, wait_s):
            begin_s = turn.end_s
            turns.append(turn)
        heappush(free_s, begin_s)
    end_s = inf if client.stop_after_s is None else client.stop_after_s
    counted = [turn for turn in turns if ramp_s <= turn.asked_s <= end_s]
    interrupted = sum(turn.interrupted for turn in counted)
    return Counts(len(counted), len(counted) - interrupted, interrupted)


def phases_of(window: Window, floor_s: float, run_end_s: float, wall_s: float) -> Phases:
    """Return the phases as measured, out of `wall_s` in all: the time outside floor and run was the start."""
    begin_s, end_s = np.clip([window.begin_s, window.end_s], 0.0, run_end_s).tolist()
    end_s = max(begin_s, end_s)
    start_s = max(0.0, wall_s - floor_s - run_end_s)
    return Phases(floor_s, start_s, begin_s, end_s - begin_s, run_end_s - end_s)


def coming(trace: Trace, client: ClientParams) -> int:
    """Return the sessions that begin before the duration of an open loop is over."""
    return sum(client.begins(_arrival_s(session)) for session in trace.sessions)


def on_line(trace: Trace) -> int:
    """Return the approximate maximum of concurrent sessions of an open loop; at least 1."""
    begins = np.sort([_arrival_s(session) for session in _users(trace)])
    ends = np.sort(_ends_s(trace, ClientParams.model_validate({})))
    in_background = sum(size for _, size in by_backlog(trace))
    return max(1, int(np.max(np.arange(1, begins.size + 1) - np.searchsorted(ends, begins)))) + in_background


def _users(trace: Trace) -> Sequence[Session]:
    """Return the sessions with which a run ends: those of no backlog, if there are any."""
    return [
        session for session in trace.sessions if session.turns[0].request.backlog is None
    ] or trace.sessions


def _ends_s(trace: Trace, client: ClientParams) -> list[float]:
    """Return when each session that comes is over. In a closed loop the next one then takes its place."""
    users = _users(trace)
    free_s = [0.0] * (client.c or len(users))
    ends_s = []
    for session in sorted(users, key=_arrival_s):
        begin_s = max(_arrival_s(session), heappop(free_s))
        end_s = max((turn.end_s for turn in _turns(session, begin_s, client, 0.0)), default=begin_s)
        heappush(free_s, end_s)
        if client.begins(begin_s):
            ends_s.append(end_s)
    return ends_s


class _Turn(NamedTuple):
    asked_s: float
    end_s: float
    interrupted: bool


def _turns(session: Session, begin_s: float, client: ClientParams, wait_s: float) -> Iterator[_Turn]:
    end_s, interrupted = begin_s, True
    for turn in session.turns:
        if turn is not session.turns[0] and turn.arrival_s is not None:
            begin_s = turn.arrival_s
        else:
            begin_s = end_s if interrupted else end_s + (turn.think_s or 0.0)
        if not client.begins(begin_s):
            break
        reply_s = turn.reply_audio_s or TOKEN_S * turn.output_tokens
        cut_s = inf if turn.barge_in_after_s is None else turn.barge_in_after_s
        if turn.microphone.event == "interruption":
            cut_s = min(cut_s, turn.microphone.event_after_s or 0.0)
        asked_s = begin_s + (turn.audio_s or 0.0)
        end_s = asked_s + wait_s + min(reply_s, cut_s)
        interrupted = cut_s < reply_s
        yield _Turn(asked_s, end_s, interrupted)


def _arrival_s(session: Session) -> float:
    return session.turns[0].arrival_s or 0.0
