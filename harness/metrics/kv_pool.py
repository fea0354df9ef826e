"""Occupancy of the KV pool over time, the straight line of its filling, and the level at which it settles.

The pool-fill model is Metronome's equation 1: rho(t) = rho0 + N r t, full at t_sat. Specification 2.3 and part 4.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

PERIOD_S = 1.0
"""Samples of the occupancy are so far apart."""

FIT_S = (10.0, 60.0)
"""The straight line is fitted to samples from this time on up to that; [chosen] in the specification."""
FIT_BELOW = 0.6
"""And to occupancies below this."""

FULL = 0.995
"""Occupancy at which the pool counts as full, rounding to blocks aside."""

SETTLED = 1e-4
"""Slope of the occupancy over the last third of a run, in 1/s, up to which a pool that is not full has settled."""


class Line(NamedTuple):
    """A line: occupancy = at_0 + slope * t; `slope` in 1/s."""

    at_0: float
    slope: float


def occupancy(steps: pd.DataFrame, end_s: float) -> pd.Series:
    """Return the share of the KV blocks in use at 0, 1, 2, ... s up to `end_s`, by that time.

    `steps` is the step table, whose rows state the use at their end. A stalled engine makes no steps, and keeps its
    blocks; before the first step none are in use. In use means referenced: a session that waits for its user keeps its
    blocks.
    """
    times = np.arange(0.0, end_s + 1e-9, PERIOD_S)
    used, blocks = np.zeros(times.size), np.zeros(times.size)
    replicas, capacity = np.asarray(steps["replica"]), np.asarray(steps["kv_blocks"])
    ends_s, held = np.asarray(steps["t_s"]) + np.asarray(steps["dt_s"]), np.asarray(steps["kv_used"])
    with_blocks = capacity > 0  # one stage serves interaction sessions, and no other runs
    for replica in np.unique(replicas[with_blocks]):
        rows = with_blocks & (replicas == replica)
        used += np.append(0, held[rows])[np.searchsorted(ends_s[rows], times, side="right")]
        blocks += capacity[rows][0]
    return pd.Series(used / np.maximum(blocks, 1), pd.Index(times, name="t_s"), name="occupancy")


def filling(pool: pd.Series) -> Line | None:
    """Return the least-squares line through the samples of an occupancy in 10 to 60 s and below 0.6; None below 3
    samples."""
    t, rho = _samples(pool)
    return _line(t, rho, (t >= FIT_S[0]) & (t <= FIT_S[1]) & (rho < FIT_BELOW))


def saturation(line: Line) -> float | None:
    """Return when the line is at 1, in s; None when it does not rise."""
    return (1 - line.at_0) / line.slope if line.slope > 0 else None


def saturated_s(pool: pd.Series, alloc_fails: pd.DataFrame) -> float | None:
    """Return when the pool was full: the first sample at 0.995 or more, or the first refusal of blocks to a waiting
    request. `alloc_fails`: the `alloc_fail` events (columns t and value; 0: waiting). None when it never was."""
    t, rho = _samples(pool)
    refused_s = np.asarray(alloc_fails["t"])[np.asarray(alloc_fails["value"]) == 0]
    times = np.concatenate([refused_s, t[rho >= FULL]])
    return float(times.min()) if times.size else None


def last_third(pool: pd.Series) -> pd.Series:
    """Return the samples over whose mean and slope a plateau is read (specification part 4)."""
    return pool.loc[2 / 3 * pool.index[-1] :]


def slope(pool: pd.Series) -> float | None:
    """Return the least-squares slope of an occupancy, 1/s; None below 3 samples."""
    line = _line(*_samples(pool), np.ones(len(pool), bool))
    return None if line is None else line.slope


def _samples(pool: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(pool.index, float), np.asarray(pool)


def _line(t: np.ndarray, rho: np.ndarray, among: np.ndarray) -> Line | None:
    if among.sum() < 3:
        return None
    t, rho = t[among], rho[among]
    spread = t - t.mean()
    slope = float(spread @ rho / (spread @ spread))
    return Line(float(rho.mean() - slope * t.mean()), slope)
