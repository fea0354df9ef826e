"""The forms of a card's figure: lines, bars, stacked bars, distributions and values over time, each on its own axes.

    draw = figure(
        TITLE,
        lines("continuity", grid("load", PAIR, c=[8, 16]), marks={"liveserve": {16: 0.875}}),
        caption="Higher is better.",
    )

A series says by x, or by group of bars, where a quantity is measured: a setting, a measure, or a number that needs no
run. It has the look of the engine of its name unless `style` has another, and the same colour in all axes of a figure.
`marks` are published values. Quantities are in s, 1/s or shares, and the name of an axis ends with the unit shown, as
in "P90 TTFP, ms" and "tokens, 1000/s". A metric names its axis itself, and so does a parameter of `AXES`.

Further names of a form are those of `matplotlib.axes.Axes.set`, and these:

    percent     (from, to): values are a share, in per cent
    doubling    values of the x axis, each twice the one before: a logarithmic axis with these ticks
    tilted      whether names of groups are written aslant
    whole       whether x is a count
    margins     room around the values, as shares of both axes
    across      level -> name of a dotted line across the axes; "" for none
    upright     the same of a vertical one

An axis of y begins at 0 unless it is logarithmic or `ylim` says otherwise. What no form can show is drawn by a function
of the axes and the card's runs, `custom`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.metrics.stats import Spread, across_seeds
from reports.claims.quantities import Measure, Panels, Quantity, Setting, of, spread
from reports.figures.axes import axis_of, bar, dress, factor_of, name_groups, name_markers
from reports.figures.drawing import legend, line, sheet
from reports.figures.picture import LeftOut, Picture, made_from, paper_handle, paper_marker
from reports.figures.style import Look, engine_looks
from reports.runs.measured import Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Draw = Callable[[Panels], Picture | LeftOut]
"""Draws a card's figure from its runs by panel."""
Shown = Setting | Sequence[Measured] | Measure | Spread | float
"""Source of a number: points of a setting, a list of points, a measure of them, or the number itself."""
Series = Mapping[str, Mapping[Any, Shown]]
"""Label -> x, or group -> where it is measured."""
Marks = Mapping[str, Mapping[Any, float | None]]
"""Label -> x, or group -> the published value; None if there is none."""
Styles = Mapping[str, Look]
Fill = Callable[["Axes", Panels], int | None]
"""Draws on axes; returns how many values it found, None where it does not count."""
Colours = dict[str, str]
"""Name -> its colour in a figure, as the axes before have it."""
AXES = {
    "c": "concurrent callers, c",
    "p": "probability of a barge-in, p",
    "rate": "offered requests, 1/s",
    "sessions": "sessions N",
}
"""Parameter -> what its axis is called."""
MOST_TICKS = 7
"""Values of a parameter that are all named on its axis."""


class Grid(dict[str, Mapping[Any, Setting]]):
    """A series over values of a parameter; `axes` are the names of its axis."""

    axes: Mapping[str, Any]


def grid(panel: str, engines: Iterable[str], **axis: Sequence[Any]) -> Grid:
    """Return the series of these engines in a panel over the values of one parameter."""
    ((name, values),) = axis.items()
    series = Grid({engine: {x: of(panel, engine, **{name: x}) for x in values} for engine in engines})
    ticks = {"xticks": list(values)} if len(values) <= MOST_TICKS else {}
    series.axes = {"xlabel": AXES[name], **ticks} if name in AXES else {}
    return series


@dataclass(frozen=True)
class Plot:
    """One pair of axes of a figure. `fill` keeps the colours that it gives."""

    fill: Callable[[Axes, Panels, Colours], int | None]
    points: Callable[[Panels], list[Measured]]
    """The points that it is made from."""
    spans: bool = False
    """True if it has bars over the seeds."""
    marked: bool = False
    """True if it has published values."""


def every(panels: Panels) -> list[Measured]:
    """The points of all panels."""
    return [point for run in panels.values() for point in run.points]


def behind(settings: Collection[Shown]) -> Callable[[Panels], list[Measured]]:
    """The points of these settings, for the `points` of a figure."""
    return lambda panels: [point for at in settings for point in _at(at, panels)]


def figure(
    title: str,
    *plots: Plot,
    caption: str | Callable[[Panels], str],
    columns: int = 0,
    height_in: float = 3.1,
    points: Callable[[Panels], Iterable[Measured]] | None = None,
    paper: str = "paper",
    **more: Any,
) -> Draw:
    """Return a card's `draw`: plots in rows of `columns` (0: one row), a legend of all names in them, and a caption.

    `points`: the points behind the figure, if they are not those of its plots; `more`: see `picture`.
    """
    columns = columns or len(plots)
    used = points or (lambda panels: [point for plot in plots for point in plot.points(panels)])
    published, spans = any(plot.marked for plot in plots), any(plot.spans for plot in plots)

    @picture(title, len(plots), height_in, columns, points=used, bars=spans, paper=paper * published, **more)
    def draw(panels: Panels, *axes: Axes) -> str | LeftOut:
        colours: Colours = {}
        counts = [plot.fill(ax, panels, colours) for plot, ax in zip(plots, axes, strict=True)]
        if not any(count is None or count for count in counts):
            return LeftOut("", title, "no value of it was measured")
        _once(axes, columns)
        return caption if isinstance(caption, str) else caption(panels)

    return draw


def picture(
    title: str,
    count: int = 1,
    height_in: float = 3.1,
    columns: int = 4,
    *,
    points: Callable[[Panels], Iterable[Measured]] = every,
    modelled: bool = False,
    bars: bool = False,
    paper: str = "",
    ncols: int = 4,
    name: str = "",
    **shared: Any,
) -> Callable[[Callable[..., str | LeftOut]], Draw]:
    """Return a card's `draw` from a function that fills `count` axes with its runs and returns the caption.

    The caption ends with the points behind the figure, `points`, and explains `bars`. Without a finished point there
    is no figure. `modelled`: it shows a model that needs no runs. `paper` names published values in the legend,
    `name` a picture that is no card's; `shared`: sharex, sharey and width_ratios of matplotlib.
    """

    def decorate(fill: Callable[..., str | LeftOut]) -> Draw:
        def draw(panels: Panels) -> Picture | LeftOut:
            used = [] if modelled else list({point.point.id: point for point in points(panels)}.values())
            if not modelled and all(point.error is not None for point in used):
                return LeftOut(name, title, "no point of it is finished")
            drawn, axes = sheet(count, title, height_in, columns, **shared)
            caption = fill(panels, *axes)
            if isinstance(caption, LeftOut):
                return replace(caption, name=name)
            legend(drawn, *([paper_handle(paper)] if paper else []), ncols=ncols)
            made = "" if modelled else made_from(used, bars)
            return Picture(name, title, drawn, f"{caption} {made}".strip())

        return draw

    return decorate


def custom(fill: Fill, **axes: Any) -> Plot:
    """Axes that a card draws itself."""

    def draw(on: Axes, panels: Panels, colours: Colours) -> int | None:
        count = fill(on, panels)
        dress(on, **axes)
        return count

    return Plot(draw, every)


def lines(
    quantity: Quantity | None,
    series: Series | Callable[[Panels], Series],
    *,
    against: Quantity | None = None,
    style: Styles | None = None,
    marks: Marks | None = None,
    beside: Callable[[Any], str] | None = None,
    extra: Fill | None = None,
    **axes: Any,
) -> Plot:
    """Draw a quantity over x, or against another quantity: medians with bars over the seeds. `beside` returns the
    text at a marker: at every marker of the first line, and of two lines; otherwise at the last one. `extra` draws
    more."""
    axes = axis_of(quantity, "y") | (axis_of(against, "x") or getattr(series, "axes", {})) | axes
    factor, across_factor = (factor_of(axes, "ylabel"), factor_of(axes, "xlabel") if against is not None else 1.0)

    def fill(on: Axes, panels: Panels, colours: Colours) -> int:
        given = series(panels) if callable(series) else series
        looks, count = style or _looks(given, colours), 0
        for index, (label, by_x) in enumerate(given.items()):
            spreads = {x: _spread(at, quantity, panels) for x, at in by_x.items()}
            across = None if against is None else {x: _spread(at, against, panels) for x, at in by_x.items()}
            places = line(on, spreads, looks[label], label, factor, across, across_factor)
            if beside is not None:
                named = list(places)[0 if index == 0 or len(given) == 2 else -1 :]
                name_markers(on, {beside(x): places[x] for x in named}, looks[label].colour, index > 0)
            count += len(places)
            for x, value in (marks or {}).get(label, {}).items():
                if value is not None:
                    paper_marker(on, x, factor * value, looks[label])
        if extra is not None:
            extra(on, panels)
        dress(on, **axes)
        return count

    return Plot(fill, _points(series), True, _marked(marks))


def bars(
    quantity: Quantity | None,
    series: Series,
    *,
    style: Styles | None = None,
    marks: Marks | None = None,
    text: str = "",
    rows: bool = False,
    extra: Fill | None = None,
    **axes: Any,
) -> Plot:
    """A cluster of bars for each group, a bar for each series, with its bar over the seeds. `text` formats the value
    at its end; `rows`: bars lie, the first group on top."""
    side = "x" if rows else "y"
    axes = axis_of(quantity, side) | axes
    factor = factor_of(axes, f"{side}label")

    def fill(on: Axes, panels: Panels, colours: Colours) -> int:
        looks, count = style or _looks(series, colours), 0
        published = {label: by_group for label, by_group in (marks or {}).items() if label in series}
        groups = list(dict.fromkeys(group for by in (*series.values(), *published.values()) for group in by))
        beside = {
            group: [label for label in series if group in {**series[label], **published.get(label, {})}]
            for group in groups
        }
        width = 0.8 / max(map(len, beside.values()), default=1)

        def place(label: str, group: Any) -> float:
            """Return the position of a bar; bars of a group are side by side."""
            labels = beside[group]
            return groups.index(group) + (labels.index(label) - (len(labels) - 1) / 2) * width

        for label, by_group in series.items():
            name: str | None = label
            for group, at in by_group.items():
                stats = _spread(at, quantity, panels)
                if stats.median is not None:
                    bar(on, place(label, group), stats, looks[label], factor, 0.9 * width, name, text, rows)
                    count, name = count + 1, None
            for group, value in published.get(label, {}).items():
                if value is not None:
                    x, height = place(label, group), factor * value
                    paper_marker(on, *((height, x) if rows else (x, height)), looks[label])
        name_groups(on, groups, rows)
        if extra is not None:
            extra(on, panels)
        dress(on, upwards=not rows, **axes)
        return count

    return Plot(fill, _points(series), True, _marked(marks))


def stacked(
    parts: Mapping[str, tuple[Quantity, str]],
    groups: Mapping[str, Setting],
    *,
    marks: Mapping[str, float] | None = None,
    **axes: Any,
) -> Plot:
    """A bar for each group, of parts one on the other, its sum above: label of a part -> its quantity and colour.
    Medians over the seeds."""
    factor = factor_of(axes, "ylabel")

    def fill(on: Axes, panels: Panels, colours: Colours) -> int:
        sums, names = [0.0] * len(groups), list(groups)
        for label, (quantity, colour) in parts.items():
            medians = [spread(at.points(panels), quantity).median or 0 for at in groups.values()]
            heights = [factor * each for each in medians]
            on.bar(range(len(groups)), heights, 0.6, bottom=sums, color=colour, label=label)
            sums = [foot + height for foot, height in zip(sums, heights, strict=True)]
        for place, total in enumerate(sums):
            on.annotate(f"{total:.0f}", (place, total), (0, 3), textcoords="offset points", ha="center", weight="bold")
        for group, value in (marks or {}).items():
            paper_marker(on, names.index(group) + 0.38, factor * value, engine_looks(group)[group])
        name_groups(on, names, False)
        dress(on, **axes)
        return sum(total > 0 for total in sums)

    return Plot(fill, _points({"": groups}), False, bool(marks))


def distribution(
    values: str | Callable[[Measured], np.ndarray],
    series: Mapping[str, Setting | Sequence[Measured]],
    *,
    style: Styles | None = None,
    marks: Marks | None = None,
    **axes: Any,
) -> Plot:
    """Draw the share of values up to x, pooled over finished points. `values`: a column of the request table over
    turns with a spoken reply (turns without an answer keep the share below 1), or a function of a point. `marks`: by
    percentile."""
    axes = {"percent": (0, 1), "xlim": (0, None), "ylabel": "share of turns"} | axes
    factor = factor_of(axes, "xlabel")

    def fill(on: Axes, panels: Panels, colours: Colours) -> int:
        looks, count = style or _looks(series, colours), 0
        for label, at in series.items():
            read = [_values(point, values) for point in _at(at, panels) if point.error is None]
            pooled = np.concatenate([*read, np.empty(0)])
            ordered = factor * np.sort(pooled[~np.isnan(pooled)])
            count += ordered.size
            if ordered.size:
                share = np.arange(1, ordered.size + 1) / pooled.size
                on.step(ordered, share, where="post", **looks[label].stroke, label=label)
            for percentile, value in (marks or {}).get(label, {}).items():
                if value is not None:
                    paper_marker(on, factor * value, percentile / 100, looks[label])
        dress(on, **axes)
        return count

    return Plot(fill, _points({"": series}), False, _marked(marks))


def over_time(
    values: Callable[[Measured], tuple[np.ndarray, np.ndarray]],
    series: Mapping[str, Setting | Sequence[Measured]],
    *,
    style: Styles | None = None,
    title: str = "",
    **axes: Any,
) -> Plot:
    """Draw values over the time of a run: of each series the finished point of the first seed, which the title names.
    `values`: times, s since the run began, and the value at each."""
    axes = {"xlabel": "time, s"} | axes
    factor = factor_of(axes, "ylabel")

    def fill(on: Axes, panels: Panels, colours: Colours) -> int:
        looks, count = style or _looks(series, colours), 0
        for label, at in series.items():
            for point in [each for each in _at(at, panels) if each.error is None][:1]:
                times, heights = values(point)
                on.plot(times, factor * heights, **looks[label].stroke, label=label)
                on.set_title(", ".join(filter(None, (title, f"seed {point.seed}"))))
                count += len(times)
        dress(on, **axes)
        return count

    return Plot(fill, _points({"": series}))


def _looks(names: Iterable[str], colours: Colours) -> Styles:
    """Return the looks of these names, with their colours of the figure, which gets those of new names."""
    found = engine_looks(*names, kept=colours)
    colours |= {name: look.colour for name, look in found.items()}
    return found


def _once(axes: Sequence[Axes], columns: int) -> None:
    """An axis is named at the left of its row and at the foot of its column where all there have one name."""
    across, up = [ax.get_xlabel() for ax in axes], [ax.get_ylabel() for ax in axes]
    for index, ax in enumerate(axes):
        if index % columns and up[index] == up[index - 1]:
            ax.set_ylabel("")
        if index + columns < len(axes) and across[index] == across[index + columns]:
            ax.set_xlabel("")


def _marked(marks: Marks | None) -> bool:
    return any(value is not None for by_x in (marks or {}).values() for value in by_x.values())


def _points(series: Series | Callable[[Panels], Series]) -> Callable[[Panels], list[Measured]]:
    """Return the points behind a series; those of the whole card if they are not known."""
    shown = [] if callable(series) else [at for by_x in series.values() for at in by_x.values()]
    if callable(series) or not all(isinstance(at, Setting | Sequence) for at in shown):
        return every
    return behind(shown)


def _at(at: Shown, panels: Panels) -> Sequence[Measured]:
    assert isinstance(at, Setting | Sequence), "a number has no points"
    return at.points(panels) if isinstance(at, Setting) else at


def _spread(at: Shown, quantity: Quantity | None, panels: Panels) -> Spread:
    if isinstance(at, Setting | Sequence):
        assert quantity is not None, "points alone are no number"
        return spread(_at(at, panels), quantity)
    if isinstance(at, Spread):
        return at
    return across_seeds(at(panels) if callable(at) else {0: at})


def _values(point: Measured, values: str | Callable[[Measured], np.ndarray]) -> np.ndarray:
    if callable(values):
        return values(point)
    return point.requests.loc[point.requests["spoken"], values].to_numpy(float)
