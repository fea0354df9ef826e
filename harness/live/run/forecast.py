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
from harness.request_tables.steady_window import Window
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
        return ", ".join(f"{name} {seconds:.0f} s" for name, seconds in zip(names, astuple(self), strict=True))


def expected_phases(trace: Trace, client: ClientParams) -> Phases:
    """Return the expected phases, before the run."""
    calls = [turns for turns in _played(trace, client, 0.0) if turns]
    run_end_s = max((turn.end_s for turns in calls for turn in turns), default=0.0)
    end_s = run_end_s if client.stop_after_s is None else min(client.stop_after_s, run_end_s)
    ramp_s = 0.0 if serves(trace) == "frames" else min(end_s, _ramp_s(calls, client))
    return Phases(FLOOR_S, START_S, ramp_s, end_s - ramp_s, run_end_s - end_s)


def _ramp_s(calls: Sequence[Sequence["_Turn"]], client: ClientParams) -> float:
    """Return the begin of the steady window of these calls (`harness.request_tables.steady_window`); 0 in an open loop,
    and where all turns are among the first."""
    ends_s = sorted(turn.complete_s for turns in calls for turn in turns)
    places = min(client.c or 0, len(calls))
    return 0.0 if not places or len(ends_s) <= places else ends_s[places - 1]


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
    calls = [turns for turns in _played(trace, client, wait_s) if turns]
    ramp_s = _ramp_s(calls, client)
    turns = [turn for turns in calls for turn in turns]
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
    from harness.client.turns import by_backlog

    begins = np.sort([_arrival_s(session) for session in _users(trace)])
    played = _played(trace, ClientParams.model_validate({}), 0.0)
    ends = np.sort([turns[-1].end_s for turns in played if turns])
    in_background = sum(size for _, size in by_backlog(trace))
    return max(1, int(np.max(np.arange(1, begins.size + 1) - np.searchsorted(ends, begins)))) + in_background


def _users(trace: Trace) -> Sequence[Session]:
    """Return the sessions with which a run ends: those of no backlog, if there are any."""
    return [session for session in trace.sessions if session.turns[0].request.backlog is None] or trace.sessions


def _played(trace: Trace, client: ClientParams, wait_s: float) -> list[list["_Turn"]]:
    """Return the turns of each session in the order of arrival, for a server that begins each answer `wait_s` after its
    turn. In a closed loop the next session takes the place of one that is over."""
    users = sorted(_users(trace), key=_arrival_s)
    free_s = [0.0] * (client.c or len(users))
    calls = []
    for session in users:
        begin_s = max(_arrival_s(session), heappop(free_s))
        turns = list(_turns(session, begin_s, client, wait_s))
        heappush(free_s, turns[-1].end_s if turns else begin_s)
        calls.append(turns)
    return calls


class _Turn(NamedTuple):
    begin_s: float
    asked_s: float
    complete_s: float
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
        complete_s = asked_s + wait_s if turn.reply_audio_s else end_s  # speech comes faster than it is played
        yield _Turn(begin_s, asked_s, complete_s, end_s, interrupted)


def _arrival_s(session: Session) -> float:
    return session.turns[0].arrival_s or 0.0
