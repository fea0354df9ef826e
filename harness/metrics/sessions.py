"""How long whole sessions take: an agent's episode, a dialogue."""

from collections.abc import Mapping

import numpy as np

from harness.metrics.metric import Measured, statistic
from harness.metrics.requests import BARGED_IN, COMPLETED

STATISTICS = ("p50", "p90", "mean")


def of_sessions(turns: Mapping[str, np.ndarray], planned: np.ndarray | None) -> dict[str, Measured]:
    """Value, n and missing of the metrics of sessions, by name.

    `turns`: columns of a request table as arrays; `planned`: the session of each turn of the trace, None: they are
    those that were started. Sessions of one turn are requests, so a trace that has no others has no such metric.
    """
    time_s, pace = _whole(turns, turns["session"] if planned is None else planned)
    return {
        f"{name}_{each}": statistic(values, each)
        for name, values in (("session_time", time_s), ("session_pace", pace))
        for each in STATISTICS
    }


def _whole(turns: Mapping[str, np.ndarray], planned: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of each started session and its turns per minute; NaN where not every turn of its has ended."""
    ids, counts = np.unique(planned, return_counts=True)
    if not counts.size or counts.max() == 1:
        return np.empty(0), np.empty(0)
    started, of_session = np.unique(turns["session"], return_inverse=True)
    wanted = counts[np.searchsorted(ids, started)]
    ended = np.isin(turns["status"], [COMPLETED, BARGED_IN])
    whole = np.bincount(of_session, ended, started.size) == wanted
    first_s, last_s = np.full(started.size, np.inf), np.full(started.size, -np.inf)
    np.minimum.at(first_s, of_session, turns["turn_start_s"])
    with np.errstate(invalid="ignore", divide="ignore"):
        np.maximum.at(last_s, of_session, turns["completion_s"])
        time_s = np.where(whole, last_s - first_s, np.nan)
        return time_s, np.where(time_s > 0, 60 * wanted / time_s, np.nan)
