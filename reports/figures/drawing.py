"""Parts that pictures are put together from: a sheet of axes, lines over a parameter, legends, axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from harness.metrics.stats import Spread
from reports.figures.picture import whiskers
from reports.figures.style import INK, MUTED, WIDTH_IN, Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Item = TypeVar("Item")

MOST_LOADS = 8
"""Loads in one picture."""
MOST_MARKED = 15
"""Points of a line, beyond which they have neither markers nor bars."""


def sheet(count: int, title: str, height_in: float = 3.1, columns: int = 3, **shared: Any) -> tuple[Figure, list[Axes]]:
    """A figure with `count` axes in rows of at most `columns`, each row `height_in` high; `shared`: sharex, sharey and
    width_ratios of matplotlib."""
    from matplotlib.figure import Figure

    columns = min(count, columns)
    rows = -(-count // columns)
    figure = Figure(figsize=(WIDTH_IN, height_in * rows + 0.9))
    axes = figure.subplots(rows, columns, squeeze=False, **shared).flatten().tolist()
    for unused in axes[count:]:
        unused.remove()
    figure.suptitle(title, x=0.012, ha="left", wrap=True)
    return figure, axes[:count]


def line(
    axes: Axes,
    spreads: Mapping[Any, Spread],
    look: Look,
    label: str,
    factor: float = 1,
    across: Mapping[Any, Spread] | None = None,
    across_factor: float = 1,
) -> dict[Any, tuple[Any, float]]:
    """Draw medians over x, joined, with bars from the lowest to the highest seed; x without a value is left out. Two
    points are not joined: a line would suggest values between them. With `across` they are drawn over its medians
    instead. Returns the place of each x; a line without values gets no legend entry."""
    measured = {x: spread for x, spread in spreads.items() if spread.median is not None}
    places = {x: (x, factor * (spread.median or 0)) for x, spread in measured.items()}
    if across is not None:
        beside = {x: across[x].median for x in measured}
        places = {x: (across_factor * at, places[x][1]) for x, at in beside.items() if at is not None}
    if places:
        how = look.joined | joining(len(places))
        axes.plot(*zip(*places.values(), strict=True), **how, label=label, zorder=4)
    several = [x for x in places if measured[x].n > 1 and len(places) <= MOST_MARKED]
    for x in several:
        ends: dict[str, Any] = {"yerr": whiskers(measured[x], factor)}
        if across is not None:
            ends["xerr"] = whiskers(across[x], across_factor)
        axes.errorbar(*places[x], **ends, color=look.colour, lw=0.9, alpha=0.7, zorder=3)
    return places


def joining(points: int) -> dict[str, Any]:
    """Return the style of a line through `points` measured points, in place of its own: none through two, and no
    markers where they would touch."""
    return {"ls": "none"} if points < 3 else {"marker": ""} if points > MOST_MARKED else {}


def legend(figure: Figure, *more: Any, ncols: int = 4, **how: Any) -> None:
    """One legend below all panels: what has a name on any of them, each name once, and further handles."""
    named: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    named |= {handle.get_label(): handle for handle in more}
    if named:
        figure.legend(named.values(), named.keys(), loc="outside lower left", ncols=ncols, **how)


def totals(axes: Axes, times: Iterable[float], end_s: float, **how: Any) -> None:
    """Draw how many of these times have passed, up to the end or the last of them."""
    times = np.sort(np.asarray(times, float))
    counts = np.r_[0, np.arange(1, times.size + 1), times.size]
    axes.step(np.r_[0, times, max(end_s, times.max(initial=0.0))], counts, where="post", **how)


def note(axes: Axes, text: str, level: float, up: float, x: float = 0.99, colour: str = MUTED) -> None:
    """Name a level of the y axis in small text, `up` points above it; `x`: a share of the width."""
    axes.annotate(
        text, (x, level), xycoords=("axes fraction", "data"), xytext=(0, up), textcoords="offset points",
        fontsize=8, color=colour, ha="right" if x > 0.5 else "left",
    )  # fmt: skip


def whole_numbers(axis: Axis) -> None:
    """Put ticks at whole numbers only, for axes that count."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))


def identity(axes: Axes, low: float, high: float, within: float = 0.10) -> None:
    """Draw the line predicted = measured between two values, and a band of this relative error around it."""
    ends = np.array([low, high])
    axes.plot(ends, ends, color=INK, lw=0.9, zorder=1)
    axes.fill_between(ends, (1 - within) * ends, (1 + within) * ends, color=MUTED, alpha=0.12, lw=0, zorder=0)


def plain_log(axis: Axis) -> None:
    """Give a logarithmic axis plain round ticks: 1, 2, 5; powers of ten alone on a long axis; even steps on an axis
    shorter than a decade."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    low, high = axis.get_view_interval()
    even = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10])
    axis.set_major_locator(even if high < 4 * low else LogLocator(subs=(1,) if high > 300 * low else (1, 2, 5)))
    plain(axis)
    axis.set_minor_formatter(NullFormatter())


def plain(axis: Axis) -> None:
    """Numbers as people write them: 0.5, 20, 350,000."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def in_per_cent(axes: Axes, values: Iterable[float] = (0, 1)) -> None:
    """The y axis as a share from the first to the last of `values`."""
    from matplotlib.ticker import PercentFormatter

    low, high = min(values), max(values)
    axes.set_ylim(low, high + 0.02 * (high - low))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))


def load_colours(count: int) -> list[str]:
    """Return a colour for each of `count` loads in order, dark to bright, also distinguishable in grey."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    places = np.linspace(0.08, 0.85, count) if count > 1 else [0.45]
    return [to_hex(colormaps["viridis"](place)) for place in places]


def few_loads(items: Sequence[Item]) -> list[Item]:
    """Return all items, or of too many the first, the last and evenly spaced ones between."""
    if len(items) <= MOST_LOADS:
        return list(items)
    return [items[place] for place in np.linspace(0, len(items) - 1, MOST_LOADS).round().astype(int)]
