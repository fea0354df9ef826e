"""Pictures that many cards have: lines over an axis, rows beside the paper's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reports.claims.quantities import Panels, Quantity, Setting, of, spread
from reports.figures.drawing import legend, line, sheet
from reports.figures.picture import LeftOut, Picture, made_from, paper_marker, whiskers
from reports.figures.style import Look
from reports.runs.measured import Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from harness.experiments.experiment import Experiment

Shown = Mapping[str, tuple[Quantity, float]]
"""Label of an axis -> what it shows, and by what that is multiplied."""
Line = tuple[str, Look, Mapping[Any, Setting]]
"""Label, look, and where it is measured by x."""
BAR = "#222b36"


def none_finished(points: Iterable[Measured], title: str) -> LeftOut | None:
    """Why there is no picture of these points, where none of them is finished."""
    if any(point.error is None for point in points):
        return None
    return LeftOut("", title, "no point of it is finished")


def lines_over(
    title: str, x: str, lines: Sequence[Line], shown: Shown, panels: Panels, caption: str
) -> Picture | LeftOut:
    """A panel for each quantity from 0 up, over `x`."""
    figure, axes = sheet(1, len(shown), title)
    used: list[Measured] = []
    for label, look, settings in lines:
        points = {at: setting.points(panels) for at, setting in settings.items()}
        used += [point for found in points.values() for point in found]
        for own, (quantity, factor) in zip(axes, shown.values(), strict=True):
            line(own, {at: spread(found, quantity) for at, found in points.items()}, look, label, factor)
    if (left_out := none_finished(used, title)) is not None:
        return left_out
    for own, label in zip(axes, shown, strict=True):
        own.set_ylim(bottom=0)
        own.set_xlabel(x)
        own.set_ylabel(label)
    legend(figure, axes[0])
    return Picture("", title, figure, f"{caption} {made_from(used, bars=True)}".lstrip())


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
    axes.set_xlabel(label)
    axes.set_xlim(left=0)


def by_engine(
    panels: Panels, experiments: Mapping[str, Experiment], looks: Mapping[str, Look]
) -> dict[str, dict[str, tuple[list[Measured], Look]]]:
    """The series of each panel for `both_views`: its engines' points, each with its look."""
    return {
        panel: {
            engine: (of(panel, engine).points(panels), look)
            for engine, look in looks.items()
            if engine in experiment.engines
        }
        for panel, experiment in experiments.items()
    }
