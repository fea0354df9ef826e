"""Pictures that many cards have: panels with a caption, lines over an axis, rows beside the paper's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

from reports.claims.quantities import Panels, Quantity, Setting, of, spread
from reports.figures.dashboard import both_views
from reports.figures.drawing import legend, line, sheet
from reports.figures.picture import LeftOut, Picture, made_from, paper_marker, whiskers
from reports.figures.style import Look, engine_looks
from reports.runs.measured import Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from harness.experiments.experiment import Experiment

Draw = Callable[[Panels, Any], Picture | LeftOut]
"""Drawing function of a card: takes its runs by panel, and the paper's numbers."""
Shown = Mapping[str, tuple[Quantity, float]]
"""Label of an axis -> what it shows, and by what that is multiplied."""
Line = tuple[str, Look, Mapping[Any, Setting]]
"""Label, look, and where it is measured by x."""
BAR = "#222b36"


def every(panels: Panels) -> list[Measured]:
    """The points of all panels."""
    return [point for run in panels.values() for point in run.points]


def none_finished(points: Iterable[Measured], title: str) -> LeftOut | None:
    """Why there is no picture of these points, where none of them is finished."""
    if any(point.error is None for point in points):
        return None
    return LeftOut("", title, "no point of it is finished")


def picture(
    title: str,
    rows: int = 1,
    columns: int = 1,
    height_in: float = 3.1,
    *,
    points: Callable[[Panels], Iterable[Measured]] | None = every,
    bars: bool = False,
    **shared: Any,
) -> Callable[[Callable[..., str | LeftOut]], Draw]:
    """A card's `draw` from a function that fills rows × columns axes (see `sheet`) and returns the caption.

    The function gets the panels, the paper's numbers and the axes. `points` are those that the picture is made from:
    the caption ends with them and says of `bars` that they span seeds, and there is no picture where none is finished.
    None: it shows a model that needs no runs.
    """

    def decorate(fill: Callable[..., str | LeftOut]) -> Draw:
        @wraps(fill)
        def draw(panels: Panels, paper: Any) -> Picture | LeftOut:
            used = None if points is None else list(points(panels))
            if used is not None and (left_out := none_finished(used, title)) is not None:
                return left_out
            figure, axes = sheet(rows, columns, title, height_in, **shared)
            caption = fill(panels, paper, *axes)
            if isinstance(caption, LeftOut):
                return caption
            return Picture(
                "", title, figure, caption if used is None else f"{caption} {made_from(used, bars)}".lstrip()
            )

        return draw

    return decorate


def line_over(
    axes: Axes,
    panels: Panels,
    settings: Mapping[Any, Setting],
    quantity: Quantity,
    look: Look,
    label: str,
    factor: float = 1,
) -> None:
    """A quantity over x, by the setting at which it is measured."""
    line(axes, {x: spread(at.points(panels), quantity) for x, at in settings.items()}, look, label, factor)


def lines_over(title: str, x: str, lines: Sequence[Line], shown: Shown, caption: str) -> Draw:
    """A panel for each quantity from 0 up, over `x`."""

    def used(panels: Panels) -> list[Measured]:
        return [point for *_, settings in lines for at in settings.values() for point in at.points(panels)]

    @picture(title, 1, len(shown), points=used, bars=True)
    def draw(panels: Panels, paper: Any, *axes: Axes) -> str:
        for own, (name, (quantity, factor)) in zip(axes, shown.items(), strict=True):
            for label, look, settings in lines:
                line_over(own, panels, settings, quantity, look, label, factor)
            own.set(ylim=(0, None), xlabel=x, ylabel=name)
        legend(axes[0])
        return caption

    return draw


def rows_beside_paper(
    axes: Axes,
    rows: Mapping[str, tuple[Sequence[Measured], float]],
    quantity: Quantity,
    factor: float,
    look: Look,
    label: str,
) -> None:
    """A horizontal bar for each row, from the top down, of its points, and the paper's number on it."""
    for place, (points, published) in enumerate(rows.values()):
        found = spread(points, quantity)
        if found.median is not None:
            axes.barh(place, factor * found.median, 0.7, color=look.colour, zorder=2)
            ends = whiskers(found, factor)
            axes.errorbar(factor * found.median, place, xerr=ends, color=BAR, lw=0.9, zorder=3)
        paper_marker(axes, factor * published, place, look)
    axes.set(xlabel=label, xlim=(0, None))


def views_by_engine(
    title: str, experiments: Mapping[str, Experiment], engines: Sequence[str], note: str = ""
) -> Draw:
    """`both_views` of each panel, a line for each of its engines."""

    def draw(panels: Panels, paper: Any) -> Picture | LeftOut:
        looks = engine_looks(*engines)
        columns = {
            panel: {e: (of(panel, e).points(panels), looks[e]) for e in engines if e in experiment.engines}
            for panel, experiment in experiments.items()
        }
        return both_views(title, columns, note)

    return draw
