"""The steady window of a live run: from when all users have come to when no new turn may begin.

Before it the load grows (ramp), after it users leave one by one (drain): neither is the load that the point is named
after. As Locust resets its statistics once all users are there, and wrk stops counting at the end of the duration,
metrics of turns are over the steady window alone. A turn belongs to the phase in which its user's turn ends: its
request goes out then, and its latencies count from there. It is followed to its own end, be that in the drain. Where a
run judges a number of turns that was fixed before, these are the first to begin, and the load lasts until all of them
have ended (`harness.live.run.judged_turns`).
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from harness.request_tables.stages import ENTRY

PHASE = "phase"
"""Column of a live run's request table."""
RAMP, STEADY, DRAIN = "ramp", "steady", "drain"


@dataclass(frozen=True)
class Window:
    """The steady window, s of the run; empty where it ends before it begins. `entry`: name, in the steps of the run, of
    the stage that requests come to first. `by_begin`: it ends with the begin of its last turn, whose request goes out
    later; else no request of it goes out after its end."""

    begin_s: float
    end_s: float
    entry: str = ENTRY
    by_begin: bool = False

    @property
    def whole(self) -> bool:
        """True where it leaves nothing out."""
        return self.begin_s == -np.inf and self.end_s == np.inf


WHOLE = Window(-np.inf, np.inf)
"""The window of a run whose metrics cover the whole run."""


def steady_window(
    events: pd.DataFrame,
    run_end_s: float,
    *,
    c: int | None,
    c_counts: Literal["session", "request", "reply"],
    stop_after_s: float | None,
    sessions: int,
    turns: int | None = None,
) -> Window:
    """Find the steady window of a run with these client events, by the load asked of its clients; `sessions`: that
    could come at all. `turns`: number of turns that are judged, the first to begin; None: all.

    In an open loop (`c` None) users come as scheduled, so it begins at 0. In a closed one it begins when all the users,
    or requests, that c allows have been there, and is empty if they never were. It ends early if no session remains to
    take the place of one that goes.
    """
    end_s = run_end_s if stop_after_s is None else min(stop_after_s, run_end_s)
    if c is None:
        return _first(events, Window(0.0, end_s), turns)
    kinds, t = np.asarray(events["kind"], str), events["t"].to_numpy(float)
    came_s, left_s = (np.sort(t[kinds == kind]) for kind in ("session_start", "session_end"))
    places = min(c, sessions)
    began = {"session": "session_start", "request": "turn_start", "reply": "turn_end"}[c_counts]
    began_s = np.sort(t[kinds == began])
    begin_s = float(began_s[places - 1]) if began_s.size >= places else np.inf
    if came_s.size == sessions and left_s.size > sessions - places:
        end_s = min(end_s, max(float(came_s[-1]), float(left_s[sessions - places])))
    return _first(events, Window(begin_s, end_s), turns)


def _first(events: pd.DataFrame, window: Window, turns: int | None) -> Window:
    """Return the window of its first `turns` turns by their begin; the same where it has fewer."""
    if turns is None:
        return window
    times = {
        kind: events.loc[(events["kind"] == kind).to_numpy()].groupby(["session", "turn"])["t"].min()
        for kind in ("turn_start", "turn_end")
    }
    asked_s = times["turn_end"].reindex(times["turn_start"].index)
    begun_s = np.sort(
        times["turn_start"][((asked_s >= window.begin_s) & (asked_s <= window.end_s)).to_numpy()]
    )
    if len(begun_s) < turns:
        return window
    return replace(window, end_s=float(begun_s[turns - 1]), by_begin=True)


def on_line_mean(events: pd.DataFrame, window: Window) -> float | None:
    """Return the mean of concurrent sessions over the window; None where it is empty."""
    if window.end_s <= window.begin_s:
        return None
    kinds, t = np.asarray(events["kind"], str), events["t"].to_numpy(float)
    left_s = window.end_s - np.clip(t, window.begin_s, window.end_s)
    total_s = left_s[kinds == "session_start"].sum() - left_s[kinds == "session_end"].sum()
    return float(total_s / (window.end_s - window.begin_s))


def sessions_rps(events: pd.DataFrame, window: Window) -> float | None:
    """Return the sessions that came, per s of the window; None where it is empty."""
    if window.end_s <= window.begin_s:
        return None
    came_s = events.loc[np.asarray(events["kind"], str) == "session_start", "t"].to_numpy(float)
    inside = (came_s >= window.begin_s) & (came_s <= window.end_s)
    return float(inside.sum() / (window.end_s - window.begin_s))


def phases(requests: pd.DataFrame, window: Window) -> np.ndarray:
    """Return the phase of each turn of a request table."""
    begun_s = requests["turn_start_s"].to_numpy(float)
    asked_s = requests["turn_end_s"].fillna(requests["turn_start_s"]).to_numpy(float)
    last_s = begun_s if window.by_begin else asked_s
    return np.select([asked_s < window.begin_s, last_s <= window.end_s], [RAMP, STEADY], DRAIN)


def counted(requests: pd.DataFrame) -> pd.DataFrame:
    """Return the turns that metrics are over: those of the steady window; all, where the table names no phases."""
    return requests.loc[requests[PHASE] == STEADY] if PHASE in requests else requests
