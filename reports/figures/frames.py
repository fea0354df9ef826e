"""Interaction sessions over time: curves of latency, speech, pool and admission of a run.

A curve is a series over the time since the run began, in s. Buckets are 10 s, as in the figures of the Metronome
paper, and stand at their middle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from harness.metrics import kv_pool
from harness.request_tables.frame_table import BUCKET_S, DELIVERED, bucket_latencies
from reports.figures.drawing import note, plain
from reports.figures.style import HEALTHY, INK, MUTED, Look
from reports.runs.measured import Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = Callable[[Measured], pd.Series]


def latency(point: Measured) -> pd.Series:
    """The median frame latency in s, by bucket of the dispatch; without sessions' first frames."""
    frames = point.requests
    buckets = bucket_latencies(frames.loc[~frames["first"]])
    return pd.Series(buckets["p50"].to_numpy(), buckets["t_s"].to_numpy() + BUCKET_S / 2)


def speech(point: Measured) -> pd.Series:
    """The share of due frames that came with speech, by bucket of their due time."""
    frames = point.requests
    judged = frames["judged"].to_numpy()
    delivered = (frames["status"] == DELIVERED).to_numpy()[judged]
    total, n = _summed(frames["due_s"].to_numpy()[judged], delivered)
    return total / n


def misses(point: Measured) -> pd.Series:
    """Return the number of frames so far whose latency exceeded the budget, by bucket of the dispatch."""
    dispatch_s, latency_s = answered(point)
    total, _ = _summed(dispatch_s, latency_s > point.params["frame_s"])
    return total.cumsum()


def pool(point: Measured) -> pd.Series:
    """The share of KV blocks in use, each second."""
    return kv_pool.occupancy(point.record.table("steps"), point.params["duration_s"])


def running(point: Measured) -> pd.Series:
    """The most requests that one step of each frame period ran; 0 while the engine makes no steps."""
    steps, period_s = point.record.table("steps"), max(1.0, point.params["frame_s"])
    times = np.arange(0.0, point.params["duration_s"], period_s)
    place = (steps["t_s"].to_numpy() // period_s).astype(int)
    most = np.zeros(times.size)
    inside = place < times.size
    np.maximum.at(most, place[inside], steps["running"].to_numpy()[inside])
    return pd.Series(most, times + period_s / 2)


def waiting(point: Measured) -> pd.Series:
    """Return the requests that wait for the engine after the last step before each second, without requests that wait
    for users."""
    steps = point.record.table("steps")
    times = np.arange(0.0, point.params["duration_s"] + 0.5)
    return pd.Series(after_steps(steps, "waiting", times), times)


def after_steps(steps: pd.DataFrame, column: str, times: np.ndarray) -> np.ndarray:
    """A column of the step table at these times: what the last step before each has left; 0 before the first."""
    ended = np.searchsorted(steps["t_s"] + steps["dt_s"], times, side="right")
    return np.append(0, steps[column])[ended]


def finished(points: Sequence[Measured]) -> list[Measured]:
    return [point for point in points if point.error is None]


def median_run(points: Sequence[Measured]) -> list[Measured]:
    """Return the finished run with the median share of frames with speech (the lower of two); None without a finished
    run."""
    ranked = sorted(finished(points), key=lambda point: (point.value("frames_with_speech") or 0.0, point.seed))
    return ranked[(len(ranked) - 1) // 2 :][:1]


def curves(axes: Axes, points: Sequence[Measured], curve: Curve, look: Look, label: str, factor: float = 1) -> int:
    """A thin line for each finished run and their median in bold; how many there were."""
    runs = [factor * curve(point) for point in finished(points)]
    for one in runs if len(runs) > 1 else []:
        axes.plot(one.index, one, color=look.colour, lw=0.7, alpha=0.45, zorder=2)
    if runs:
        # Of an even number the lower one: halfway between the floor and the wall is where no run ever was.
        median = pd.concat(runs, axis=1).quantile(0.5, axis=1, interpolation="lower")
        axes.plot(median.index, median, **look.stroke, label=label, zorder=3)
    return len(runs)


LOWEST_MS, ABOVE = 0.2, 3.5
"""Range of a latency axis, the upper end in budgets, so that pictures can be compared."""


def latency_axes(axes: Axes, point: Measured, named: bool = True) -> None:
    """A log axis in ms, with the budget and the cap of the wait as lines, `named` or not."""
    budget_ms, cap = 1000 * point.params["frame_s"], point.params.get("wait_cap")
    levels = [(budget_ms, "deadline B", (6, 2), 3)]
    if cap is not None:  # unknown for a foreign endpoint
        levels.append((budget_ms * cap, "wait cap", (2, 2), -10))
    axes.set_yscale("log")
    plain(axes.yaxis)
    for level, name, dashes, place in levels:
        axes.axhline(level, color=MUTED, lw=0.9, ls=(0, dashes), zorder=1)
        if named:
            note(axes, f"{name} {level:g} ms", level, place, x=0.004)
    axes.set_ylim(LOWEST_MS, ABOVE * budget_ms)
    axes.set_ylabel("frame latency, ms")


def deadline_misses(axes: Axes, points: Sequence[Measured]) -> None:
    """Frames over their deadline, counted over time at the right, in the colour that a dashboard would give them."""
    counts = [misses(point) for point in finished(points)]
    if not counts:
        return
    total = pd.concat(counts, axis=1).ffill().sum(axis=1)
    frames = sum(answered(point)[0].size for point in finished(points))
    right = axes.twinx()
    right.plot(total.index, total, color=HEALTHY, lw=2.2, zorder=4)
    most = int(total.to_numpy().max())
    right.set(ylim=(-0.06 * max(most, 1), 1.5 * max(most, 1)), yticks=[0, most] if most else [0])
    right.grid(visible=False)
    right.set_ylabel("deadline misses", color=HEALTHY)
    right.tick_params(colors=HEALTHY)
    right.annotate(
        f"deadline misses: {most:,} of {frames:,} frames", (0.99, 0), xycoords=("axes fraction", "data"),
        xytext=(0, 4), textcoords="offset points", ha="right", fontsize=9, color=HEALTHY, weight="bold",
    )  # fmt: skip


def fit_line(axes: Axes, point: Measured, look: Look) -> None:
    """The straight line of the pool-fill model (eq. 1) up to where it is full, and when it really was."""
    predicted_s, measured_s = (point.value(f"saturation_{name}_s") for name in ("predicted", "measured"))
    line = kv_pool.filling(pool(point))
    if line is not None and predicted_s is not None and predicted_s < 2 * point.params["duration_s"]:
        ends_s = np.array([kv_pool.FIT_S[0], predicted_s])
        axes.plot(ends_s, line.at_0 + line.slope * ends_s, color=INK, lw=1.3, ls=(0, (1, 2)), zorder=5)
    if measured_s is not None:
        axes.plot(measured_s, 1, "x", ms=9, mew=2.2, color=look.colour, zorder=6)


def answered(point: Measured) -> tuple[np.ndarray, np.ndarray]:
    """Dispatch and latency in s of every frame that a tick returned."""
    dispatch_s, latency_s = (point.requests[name].to_numpy(float) for name in ("dispatch_s", "latency_s"))
    mask = ~np.isnan(latency_s)
    return dispatch_s[mask], latency_s[mask]


def _summed(times_s: np.ndarray, flags: np.ndarray) -> tuple[pd.Series, pd.Series]:
    """Return the number of set flags and of all flags in each bucket, by the middle of non-empty buckets. A last
    bucket shorter than half is merged into the one before, as in `harness.request_tables.frame_table`."""
    buckets = times_s // BUCKET_S
    last = buckets.max(initial=0)
    if times_s.max(initial=0) - BUCKET_S * last < BUCKET_S / 2:
        buckets = np.minimum(buckets, max(last - 1, 0))
    bucket, place = np.unique(buckets, return_inverse=True)
    middle = bucket * BUCKET_S + BUCKET_S / 2
    return pd.Series(np.bincount(place, flags), middle), pd.Series(np.bincount(place), middle)
