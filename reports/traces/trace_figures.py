"""The common parts of the pictures of traces: colours, panels side by side, plain scales, curves of bounded size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reports.figures.style import WIDTH_IN
from workloads.trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

OURS, OTHER, LAW = "#0072b2", "#d55e00", "#222b36"
"""The trace; what it is compared with; a law."""

POINTS = 400
"""Most points of a curve: a million arrivals draw as fast as a thousand, and the file stays small."""


@dataclass(frozen=True)
class Shown:
    """A trace with its name and colour in every picture."""

    label: str
    trace: Trace
    colour: str


def shown(trace: Trace, label: str, other: Trace | None, other_label: str) -> list[Shown]:
    """The trace, and the one it is compared with if there is one."""
    both = [Shown(label, trace, OURS)]
    return both if other is None else [*both, Shown(other_label, other, OTHER)]


def grid(count: int, title: str, height_in: float, columns: int) -> tuple[Figure, list[Axes]]:
    """A figure with `count` independent panels in rows of `columns`, each row `height_in` high."""
    from matplotlib.figure import Figure

    rows = -(-count // columns)
    figure = Figure(figsize=(WIDTH_IN, height_in * rows + 0.6))
    axes = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for unused in axes[count:]:
        unused.remove()
    figure.suptitle(title, x=0.012, ha="left", wrap=True)
    return figure, axes[:count]


def logarithmic(axis: Axis) -> None:
    """Marks at 1, 2 and 5 times powers of ten, few of them, written as plain numbers."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

    low, high = sorted(axis.get_view_interval())
    decades = np.log10(high / low)
    if decades < 0.7:
        axis.set_major_locator(MaxNLocator(3))
    else:
        axis.set_major_locator(
            LogLocator(subs=(1,), numticks=5) if decades > 1.3 else LogLocator(subs=(1, 2, 5))
        )
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
    if decades < 7 and low > 1e-5:
        plain(axis)


def plain(axis: Axis) -> None:
    """Numbers as people write them: 0.5, 20, 350,000."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}" if abs(x) >= 1000 else f"{x:g}"))


def thinned(values: np.ndarray) -> np.ndarray:
    """Positions in `values` of at most `POINTS` evenly spread ones, first and last among them."""
    return np.unique(np.linspace(0, len(values) - 1, min(POINTS, len(values))).astype(int))


def probabilities(n: int) -> np.ndarray:
    """Ascending probabilities at which to compare quantiles of n values; of many, denser in both tails."""
    if n <= POINTS:
        return (np.arange(n) + 0.5) / n
    middle = (np.arange(POINTS // 2) + 0.5) / (POINTS // 2)
    tail = np.geomspace(1 / n, 0.5, POINTS // 4) / 2
    return np.unique(np.concatenate([tail, middle, 1 - tail]))


def survival(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points (x, share of values >= x) of a sample, x ascending."""
    ordered = np.sort(values)
    ranks = np.geomspace(1, len(ordered), POINTS).astype(int)  # from the longest, where single values show
    at = np.unique(len(ordered) - ranks)
    return ordered[at], 1 - at / len(ordered)
