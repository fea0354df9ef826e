"""The answer as a picture: the metric of the first sentence at its setting, over the load or side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.metrics.vocabulary import definition
from reports.figures.drawing import line
from reports.figures.picture import Picture, counts, made_from, whiskers
from reports.figures.style import INK, Look, looks
from reports.runs.answer import Answer, find_answer, labels
from reports.runs.measured import Measured, Run, Variant, over_seeds
from reports.runs.part import Opening
from reports.tables.columns import Column
from reports.tables.labels import setting, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "answer"
WIDTH_IN = 6.0
"""Width at which the text is still readable on a phone."""


def answer_looks(run: Run, answer: Answer) -> dict[str, Look]:
    """The variants that the sentence names, in the order of the run, and how each is drawn."""
    order = [variant.engine for variant in run.variants]
    engines = {label: next(iter(answer.variants[label].values())).engine for label in answer.variants}
    named = sorted(
        (label for label in answer.variants if label in answer.named), key=lambda label: order.index(engines[label])
    )
    drawn = looks([Variant(engines[label], (("", label),)) for label in named])
    return dict(zip(named, drawn.values(), strict=True))


def opening(run: Run) -> Opening:
    """Return the answer, with an empty sentence where nothing has finished."""
    answer = find_answer(run.finished, [*run.experiment.grid])
    if answer is None:
        return Opening("")
    return Opening(answer.sentence, lambda: filter(None, [draw(run, answer)]))


def draw(run: Run, answer: Answer) -> Picture | None:
    """Draw the answer over the load, or over p if that was varied, else as a bar for each variant. None for a single
    number."""
    from matplotlib.figure import Figure

    fixed, look = dict(answer.fixed), answer_looks(run, answer)
    over = next((name for name in (answer.load, "p") if name in fixed and len(run.values(name)) > 1), None)
    if over is not None:
        del fixed[over]
    if over is None and len(look) < 2:
        return None
    shown = _by_label(run, fixed, [axis for axis in run.experiment.grid if axis != over], list(look))
    column, better = answer.column, definition(answer.column.metric).better
    title = " at ".join(filter(None, [f"{column.heading}, {column.unit}".rstrip(", "), setting(fixed)]))
    figure = Figure(figsize=(WIDTH_IN, 3.4 if over else 1.1 + 0.42 * len(look)))
    axes = figure.subplots()
    figure.suptitle(title, x=0.012, ha="left", wrap=True)
    if over is None:
        _bars(axes, shown, look, column)
    else:
        _lines(axes, shown, look, column, over)
        figure.legend(loc="outside lower left", ncols=2)
    used = [point for points in shown.values() for point in points]
    direction = f"{better.capitalize()} is better; " if better else ""
    caption = f"{direction}{counts(used, column.metric, 'events')}. {made_from(used, bars=True)}"
    return Picture(NAME, title, figure, caption)


def _by_label(
    run: Run, fixed: Mapping[str, Any], axes: Sequence[str], wanted: Sequence[str]
) -> dict[str, list[Measured]]:
    points = [
        point
        for point in run.points
        if point.error is None and all(point.params.get(name) == value for name, value in fixed.items())
    ]
    by_label: dict[str, list[Measured]] = {label: [] for label in wanted}
    for point, label in zip(points, labels([point.finished for point in points], axes), strict=True):
        if label in by_label:
            by_label[label].append(point)
    return by_label


def _lines(
    axes: Axes, by_label: Mapping[str, Sequence[Measured]], look: Mapping[str, Look], column: Column, over: str
) -> None:
    metric, factor = column.metric, column.factor
    values = sorted({point.params[over] for points in by_label.values() for point in points})
    for label, points in by_label.items():
        spreads = {value: over_seeds([p for p in points if p.params[over] == value], metric) for value in values}
        line(axes, spreads, look[label], label, factor)
        last = spreads[values[-1]].median
        if last is not None:
            axes.annotate(
                column.text(last), (values[-1], factor * last), (7, 0), textcoords="offset points",
                va="center", color=look[label].colour, weight="bold", annotation_clip=False,
            )  # fmt: skip
    axes.set_xticks(values, [short(value) for value in values])
    axes.set_xlabel(_axis_name(over))
    _from_zero(axes, column)


def _bars(axes: Axes, by_label: Mapping[str, Sequence[Measured]], look: Mapping[str, Look], column: Column) -> None:
    for place, (label, points) in enumerate(by_label.items()):
        spread = over_seeds(points, column.metric)
        if spread.median is None:
            continue
        value = column.factor * spread.median
        axes.barh(place, value, 0.62, color=look[label].colour, zorder=2)
        axes.errorbar(value, place, xerr=whiskers(spread, column.factor), color=INK, lw=0.9, zorder=3)
        high = column.factor * (spread.high or 0)
        axes.annotate(
            column.text(spread.median), (high, place), (6, 0), textcoords="offset points", va="center", weight="bold",
        )  # fmt: skip
    axes.set_yticks(range(len(by_label)), list(by_label))
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.margins(x=0.14)
    axes.set_xlabel(column.unit)


def _from_zero(axes: Axes, column: Column) -> None:
    """The whole scale of a share, and no difference made large by a scale that begins above 0."""
    low, high = axes.get_ylim()
    share = column.unit.startswith("%")
    axes.set_ylim(min(0.0, low) if not share else -3.0, 104.0 if share and high > 60 else high)


def _axis_name(over: str) -> str:
    names: dict[str, Any] = {
        "c": "concurrent callers, c",
        "rate": "sessions a second",
        "sessions": "calls",
        "p": "share of replies that users interrupt, p",
    }
    return names[over]
