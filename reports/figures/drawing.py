"""Parts that the pictures of figure cards are put together from: curves, lines over a parameter, bars, axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from harness.metrics.stats import Spread
from reports.figures.picture import paper_marker, whiskers
from reports.figures.style import INK, WIDTH_IN, Look
from reports.runs.measured import Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Item = TypeVar("Item")

MOST_LOADS = 8
"""Loads in one picture."""


def sheet(
    rows: int, columns: int, title: str, height_in: float = 3.1, **shared: Any
) -> tuple[Figure, list[Axes]]:
    """A figure of rows × columns axes, row by row; `shared` is sharex, sharey and width_ratios of matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_IN, height_in * rows + 0.9))
    axes = figure.subplots(rows, columns, squeeze=False, **shared).flatten().tolist()
    figure.suptitle(title, x=0.012, ha="left", wrap=True)
    return figure, axes


def cdf(
    axes: Axes, points: Sequence[Measured], column: str, look: Look, label: str, factor: float = 1
) -> int:
    """The distribution of a column of the request table, turns pooled over finished points; how many have a value.

    The share is over all turns with a spoken reply, so turns that were never answered keep it below 1.
    """
    tables = [point.requests for point in points if point.error is None]
    found = (
        np.concatenate([table.loc[table["spoken"], column] for table in tables]) if tables else np.empty(0)
    )
    known = factor * np.sort(found[~np.isnan(found)])
    if known.size:
        share = np.arange(1, known.size + 1) / found.size
        axes.step(known, share, where="post", **look.stroke, label=label)
    return known.size


def line(axes: Axes, spreads: Mapping[Any, Spread], look: Look, label: str, factor: float = 1) -> None:
    """Medians over x, joined, with bars from the lowest to the highest seed; x without a value is left out. Two are not
    joined: a straight line would tell of what lies between them."""
    known = {x: spread for x, spread in spreads.items() if spread.median is not None}
    for x, spread in known.items():
        assert spread.median is not None
        axes.errorbar(
            x,
            factor * spread.median,
            yerr=whiskers(spread, factor),
            color=look.colour,
            lw=0.9,
            alpha=0.7,
            zorder=3,
        )
    axes.plot(
        list(known),
        [factor * (spread.median or 0) for spread in known.values()],
        **look.joined | joining(len(known)),
        label=label,
        zorder=4,
    )


def joining(points: int) -> dict[str, Any]:
    """Return the style of a line through `points` measured points, in place of its own: none through two."""
    return {"ls": "none"} if points < 3 else {}


def bar(
    axes: Axes,
    x: float,
    spread: Spread,
    look: Look,
    factor: float = 1,
    width: float = 0.6,
    label: str | None = None,
) -> None:
    """A median as a bar with whiskers over the seeds; nothing where there is none."""
    if spread.median is not None:
        axes.bar(x, factor * spread.median, width, color=look.colour, label=label, zorder=2)
        ends = whiskers(spread, factor)
        axes.errorbar(x, factor * spread.median, yerr=ends, color=INK, lw=0.9, zorder=3)


def bars(
    axes: Axes,
    groups: Sequence[str],
    series: Mapping[str, tuple[Sequence[Spread], Look]],
    paper: Mapping[str, Sequence[float | None]] | None = None,
    factor: float = 1,
) -> None:
    """A cluster of bars for each group, a bar for each series, with its label; the paper's values marked on them."""
    width = 0.8 / len(series)
    for index, (label, (spreads, look)) in enumerate(series.items()):
        shift = (index - (len(series) - 1) / 2) * width
        for x, spread in enumerate(spreads):
            name = label if label not in axes.get_legend_handles_labels()[1] else None
            bar(axes, x + shift, spread, look, factor, 0.9 * width, name)
        for x, value in enumerate((paper or {}).get(label, ())):
            if value is not None:
                paper_marker(axes, x + shift, factor * value, look)
    axes.set_xticks(range(len(groups)), list(groups))


def legend(axes: Axes, *more: Any, ncols: int = 4) -> None:
    """One legend below all panels: what `axes` has, and further handles such as `paper_handle()`."""
    handles, _ = axes.get_legend_handles_labels()
    axes.figure.legend(handles=[*handles, *more], loc="outside lower left", ncols=ncols)


def whole_numbers(axis: Axis) -> None:
    """Ticks of what is counted: there are no 2.5 sessions."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))


def in_per_cent(axes: Axes, values: Iterable[float] = (0, 1)) -> None:
    """The y axis as a share from the first to the last of `values`."""
    from matplotlib.ticker import PercentFormatter

    low, high = min(values), max(values)
    axes.set_ylim(low, high + 0.02 * (high - low))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))


def load_colours(count: int) -> list[str]:
    """One for each of `count` loads in their order, dark to bright; to be told apart in grey too."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    places = np.linspace(0.08, 0.85, count) if count > 1 else [0.45]
    return [to_hex(colormaps["viridis"](place)) for place in places]


def few_loads(items: Sequence[Item]) -> list[Item]:
    """All of them, or of too many the first, the last and evenly what lies between."""
    if len(items) <= MOST_LOADS:
        return list(items)
    return [items[place] for place in np.linspace(0, len(items) - 1, MOST_LOADS).round().astype(int)]
