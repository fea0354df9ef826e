"""Pictures: a figure with its caption, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.metrics.stats import Spread
from reports.figures.style import Look, looks
from reports.runs.measured import Measured, Run, Variant
from reports.tables.labels import counted, seed_list

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Picture:
    """A drawn picture. `name` is its file name; the caption explains it and names the points behind it."""

    name: str
    title: str
    figure: Figure
    caption: str
    read_off: Mapping[str, Mapping[Variant, float]] = field(default_factory=dict)
    """Numbers in the picture that are not metrics: name -> variant -> value."""


@dataclass(frozen=True)
class LeftOut:
    """A picture that these records cannot feed."""

    name: str
    title: str
    reason: str


def made_from(points: Iterable[Measured], bars: bool = False) -> str:
    """Return the points and seeds behind a picture, the meaning of its bars, and its missing points."""
    points = list(dict.fromkeys(points))
    seeds = sorted({point.seed for point in points})
    failed = sum(point.error is not None for point in points)
    text = f"Made from {counted(len(points), 'point')}, {seed_list(seeds)}"
    if bars and len(seeds) > 1:
        text += "; markers are medians over the seeds, bars span them"
    if failed:
        text += f"; {failed} failed and missing, so that variants may rest on different seeds"
    return text + "."


def counts(points: Iterable[Measured], metric: str, noun: str) -> str:
    """`n = 183 to 224 turns a run`: the observations behind a metric in each finished run."""
    n = [point.count(metric) for point in points if point.error is None]
    if not n:
        return "no run finished"
    return f"n = {min(n):,}{f' to {max(n):,}' if max(n) > min(n) else ''} {noun} a run"


def at(run: Run, free: Iterable[str], **params: Any) -> dict[str, Any]:
    """Return `params` without what the workload lacks, and the first value of every other axis but `free`."""
    given = {name: value for name, value in params.items() if value is not None}
    return {**run.pinned(*free, *params), **given}


def over(run: Run, axis: str, **params: Any) -> dict[str, dict[Any, list[Measured]]]:
    """The points of each variant of a run over the values of an axis, at these parameters."""
    return {
        variant.label: {x: run.at(variant, **at(run, (axis,), **params), **{axis: x}) for x in run.values(axis)}
        for variant in run.variants
    }


def points_of(series: Mapping[str, Mapping[Any, Iterable[Measured]]]) -> list[Measured]:
    """The points of such a series."""
    return [point for by_x in series.values() for points in by_x.values() for point in points]


def labelled(run: Run) -> dict[str, Look]:
    """The look of each variant of a run, by its label."""
    return {variant.label: look for variant, look in looks(run.variants).items()}


def whiskers(spread: Spread, factor: float = 1) -> list[list[float]]:
    """Error bars in matplotlib's form, from the lowest to the highest seed; empty bars for one seed."""
    assert spread.median is not None and spread.low is not None and spread.high is not None
    return [[factor * (spread.median - spread.low)], [factor * (spread.high - spread.median)]]


def paper_marker(axes: Axes, x: float, y: float, look: Look) -> None:
    """A published number: small and hollow, so that it is not taken for ours; white inside, to be seen on a bar."""
    axes.plot(x, y, look.marker, markersize=5.5, mfc="white", mec=look.colour, mew=1.1, linestyle="none", zorder=4)


def paper_handle(label: str) -> Any:
    """The legend's entry for `paper_marker`."""
    return line_handle(marker="o", markersize=5.5, mfc="none", mec="#5d6b7c", ls="none", label=label)


def line_handle(**look: Any) -> Any:
    """A legend's entry for a line or a marker."""
    from matplotlib.lines import Line2D

    return Line2D([], [], **look)


def patch_handle(**look: Any) -> Any:
    """A legend's entry for an area."""
    from matplotlib.patches import Patch

    return Patch(**look)
