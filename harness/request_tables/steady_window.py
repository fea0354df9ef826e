"""The steady window: the part of a run under the load that the run is named after. Replays and live runs share it.

In a closed loop the first requests arrive almost together at an idle server, and their prompts are computed one after
the other, under every policy. At the end, users leave and nobody takes their place. So percentiles, shares and rates
are over the window alone. It begins when as many requests have ended as there are slots. (The end of the last one of
the first requests would be that of the longest reply of c, and never that of a request that hangs.) It ends when, after
the last session has come, the first one leaves. In an open loop users come as scheduled, so the window is from the
first user to the last request: a burst, or documents that wait from the start, are part of the load, and no server may
shorten its window.

A turn belongs to the phase in which its user's turn ends: its request goes out then, and its latencies count from
there. It is followed to its own end, be that in the drain. Where a run judges a number of turns that was fixed before,
these are the first to begin, and the load lasts until all of them have ended (`harness.live.run.judged_turns`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import ConfigDict, Field

from harness.request_tables.request_table import ABORTED, FAILED, REJECTED
from harness.request_tables.stages import ENTRY
from workloads.columns.jobs import starts

PHASE = "phase"
"""Column of a request table of turns."""
RAMP, STEADY, DRAIN = "ramp", "steady", "drain"
Positive = Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class Load:
    """The load that was asked of the users, which decides the window of a run of turns.

    `entry`: name, in the steps of the run, of the stage that requests come to first. `slots`: of a closed loop, those
    of all replicas together; None: an open loop. `stop_after_s`: no turn begins later, s. `judged`: number of turns
    that are judged, the first to begin; None: all.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    entry: str = ENTRY
    slots: Positive | None = None
    stop_after_s: float = np.inf
    judged: Positive | None = None


@dataclass(frozen=True)
class Window:
    """The steady window, s of the run; empty where it ends before it begins. `by_begin`: it ends with the begin of its
    last turn, whose request goes out later; else no request of it goes out after its end."""

    begin_s: float
    end_s: float
    by_begin: bool = False

    @property
    def whole(self) -> bool:
        """True where it leaves nothing out."""
        return self.begin_s == -np.inf and self.end_s == np.inf

    @property
    def length_s(self) -> float:
        return max(0.0, self.end_s - self.begin_s)


WHOLE = Window(-np.inf, np.inf)
"""The window of a run that has no steady part."""


def steady_window(requests: pd.DataFrame, turns: pd.DataFrame | Mapping[str, Any], load: Load) -> Window:
    """Return the steady window of a run; WHOLE where a closed loop has none: all its turns are among the first, or no
    turn of a user was asked between begin and end.

    `requests`: request table of the run so far. `turns`: columns of the trace. Sessions of a backlog, and agents that
    another agent calls, are no users of their own.
    """
    users, planned = _users(turns)
    mine = requests.loc[np.isin(requests["session"], users)]
    if mine.empty:
        return WHOLE
    came_s, left_s = _sessions(mine, turns)
    if load.slots is None:
        begin_s, end_s = float(came_s[0]), float(mine["turn_end_s"].fillna(mine["turn_start_s"]).max())
    else:
        ends_s = np.sort(mine["ended_s"].dropna().to_numpy(float))
        places = min(load.slots, users.size)
        if planned <= places or ends_s.size < places:
            return WHOLE
        begin_s, end_s = float(ends_s[places - 1]), np.inf
        if came_s.size == users.size:
            # A session that makes room for the last one leaves before, or at that moment.
            end_s = float(left_s[left_s > came_s[-1]].min(initial=np.inf))
    end_s = min(end_s, load.stop_after_s)
    window = _judged(mine, Window(begin_s, end_s), load.judged)
    return window if (phases(mine, window) == STEADY).any() else WHOLE


def _users(turns: pd.DataFrame | Mapping[str, Any]) -> tuple[np.ndarray, int]:
    """Return the sessions of users, and their planned turns. Where all sessions are of backlogs, all are users."""
    columns = {name: np.asarray(turns[name]) for name in ("session", "turn", "waits", "backlog") if name in turns}
    session = columns["session"]
    first = starts(columns) if "waits" in columns else columns["turn"] == 0
    if "backlog" in columns and np.isnan(columns["backlog"].astype(float)).any():
        first &= np.isnan(columns["backlog"].astype(float))
    users = np.unique(session[first])
    return users, int(np.isin(session, users).sum())


def _sessions(requests: pd.DataFrame, turns: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return when sessions came, and when they left, each in ascending order, s; infinite for one that has not left: it
    still waits for a reply, or for a slot for a later turn."""
    ids, row = np.unique(requests["session"], return_inverse=True)
    came_s, left_s = np.full(ids.size, np.inf), np.full(ids.size, -np.inf)
    np.minimum.at(came_s, row, requests["turn_start_s"].to_numpy(float))
    np.maximum.at(left_s, row, requests["ended_s"].fillna(np.inf).to_numpy(float))
    last, planned = np.zeros(ids.size, int), np.zeros(ids.size, int)
    np.maximum.at(last, row, requests["turn"].to_numpy(int))
    mine = np.isin(turns["session"], ids)
    of_trace = np.searchsorted(ids, np.asarray(turns["session"])[mine])
    np.maximum.at(planned, of_trace, np.asarray(turns["turn"])[mine].astype(int))
    gave_up = np.zeros(ids.size, bool)
    gave_up[row[np.isin(requests["status"], [FAILED, ABORTED, REJECTED])]] = True
    return np.sort(came_s), np.sort(np.where((last == planned) | gave_up, left_s, np.inf))


def _judged(requests: pd.DataFrame, window: Window, judged: int | None) -> Window:
    """Return the window of its first `judged` turns by their begin; the same where it has fewer."""
    if judged is None:
        return window
    begun_s = np.sort(requests.loc[phases(requests, window) == STEADY, "turn_start_s"].to_numpy(float))
    if len(begun_s) < judged:
        return window
    return replace(window, end_s=float(begun_s[judged - 1]), by_begin=True)


def phases(requests: pd.DataFrame, window: Window) -> np.ndarray:
    """Return the phase of each turn of a request table."""
    begun_s = requests["turn_start_s"].to_numpy(float)
    asked_s = requests["turn_end_s"].fillna(requests["turn_start_s"]).to_numpy(float)
    last_s = begun_s if window.by_begin else asked_s
    return np.select([asked_s < window.begin_s, last_s <= window.end_s], [RAMP, STEADY], DRAIN)


def counted(requests: pd.DataFrame) -> pd.DataFrame:
    """Return the turns that metrics are over: those of the steady window; all rows of a table without phases, as of
    frames."""
    return requests.loc[requests[PHASE] == STEADY] if PHASE in requests else requests


def on_line_mean(events: pd.DataFrame, window: Window) -> float | None:
    """Return the mean of concurrent sessions over the window; None where it is empty or infinite."""
    if not 0 < window.length_s < np.inf:
        return None
    kinds, t = np.asarray(events["kind"], str), events["t"].to_numpy(float)
    left_s = window.end_s - np.clip(t, window.begin_s, window.end_s)
    total_s = left_s[kinds == "session_start"].sum() - left_s[kinds == "session_end"].sum()
    return float(total_s / window.length_s)


def sessions_rps(events: pd.DataFrame, window: Window) -> float | None:
    """Return the sessions that came, per s of the window; None where it is empty or infinite."""
    if not 0 < window.length_s < np.inf:
        return None
    came_s = events.loc[np.asarray(events["kind"], str) == "session_start", "t"].to_numpy(float)
    inside = (came_s >= window.begin_s) & (came_s <= window.end_s)
    return float(inside.sum() / window.length_s)
