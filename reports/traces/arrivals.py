"""When users come: how many by when, and how evenly."""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from reports.figures.picture import LeftOut, Picture
from reports.traces.drawing import Shown, grid, plain, thinned
from workloads.statistics.arrival_statistics import rate
from workloads.statistics.describe import scheduled

NAME, TITLE = "arrivals", "Arrivals over time"
WINDOWS = (12, 60)
"""Fewest and most windows, about, of some 4 arrivals each; their length is 1, 2 or 5 times a power of ten."""


def draw(traces: Sequence[Shown]) -> Picture | LeftOut:
    """Cumulative arrivals, and arrivals per window with the range in which Poisson counts would lie."""
    times = {one.label: scheduled(one.trace) for one in traces}
    first = times[traces[0].label]
    if rate(first) is None:
        return LeftOut(NAME, TITLE, "all its arrivals are at one instant")
    figure, (total, counts) = grid(2, TITLE, 2.3, 1)
    total.sharex(counts)
    window_s = _window(max(t[-1] - t[0] for t in times.values()), len(first))
    for one in traces:
        since = times[one.label] - times[one.label][0]
        at = thinned(since)
        total.step(since[at], at + 1, where="post", color=one.colour, lw=1.6, label=one.label)
        full = max(1, int(since[-1] / window_s))
        held = np.bincount((since / window_s).astype(int))[:full]
        counts.stairs(held, np.arange(full + 1) * window_s, color=one.colour, lw=1.2)
    mean = (rate(first) or 0.0) * window_s
    low, high = stats.poisson.interval(0.95, mean)
    counts.axhspan(low, high, color=traces[0].colour, alpha=0.13, lw=0)
    counts.axhline(mean, color=traces[0].colour, lw=0.9, ls=(0, (4, 3)))
    total.plot([0, first[-1] - first[0]], [1, len(first)], color=traces[0].colour, lw=0.9, ls=(0, (4, 3)))
    total.set_ylabel("arrivals so far")
    counts.set_ylabel(f"arrivals per {window_s:,g} s")
    counts.set_ylim(bottom=0)
    total.tick_params(labelbottom=False)
    for axis in (total.yaxis, counts.yaxis, counts.xaxis):
        plain(axis)
    counts.margins(x=0.01)
    counts.set_xlabel("time since the first arrival, s")
    if len(traces) > 1:
        total.legend(loc="upper left")
    caption = (
        f"Turns with a scheduled arrival: each session's first, all of a replay (n = {len(first):,}). The "
        f"dashed line is a constant rate of {rate(first):.3g} per second; the band holds 95 % of the counts "
        "of a Poisson process of that rate. A last window that is not full is left out."
    )
    return Picture(NAME, TITLE, figure, caption)


def _window(span_s: float, arrivals: int) -> float:
    steps = np.outer(10.0 ** np.arange(-4, 9), [1, 2, 5]).ravel()
    return float(steps[np.argmin(np.abs(np.log(steps * np.clip(arrivals / 4, *WINDOWS) / span_s)))])
