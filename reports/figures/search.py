"""A search: the values tried, the targets, and the largest value that meets them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from harness.slo.search import Search, Searches
from harness.slo.targets import Target, name_of, scale
from reports.figures.drawing import joining, legend, note, sheet
from reports.figures.picture import LeftOut, Picture, line_handle
from reports.figures.style import BROKEN, HEALTHY, INK, MUTED, Look, looks
from reports.runs.measured import Run, Variant
from reports.tables.labels import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "search"
_COLOURS: dict[str, str] = {"passes": HEALTHY, "fails": BROKEN, "undecided": INK, "invalid": MUTED}
_ONE = Look(INK, "o", "-", 1.4)
"""The look of the only search at an endpoint."""


def draw(run: Run) -> Picture | LeftOut:
    searches = run.searches
    if searches is None or not searches.points:
        if run.live:
            return LeftOut(NAME, "How many calls it can handle", "no search was made (rehearse live --find)")
        return LeftOut(NAME, "The largest passing value", "no search was made (rehearse find)")
    question, (one, *_) = searches.question, searches.searched
    tried = sum(len(each.tried) for each in searches.searched)
    if question.counts:
        title, caption = _of_endpoint(one)
        pairs, handles = [(_ONE, one)], _outcomes(one)
    else:
        title = f"The largest {question.over} that meets every target"
        caption = (
            f"A marker is one seed at one {question.over}; a line joins the medians of values tried on "
            "every seed; an arrow is a percentile that failed turns make infinite. The shaded side "
            f"misses the target. Dotted, and in the legend: the largest {question.over} at which every "
            f"seed meets every target. Made from {counted(tried, 'point')}."
        )
        variants = [Variant(each.engine, tuple(each.settings.items())) for each in searches.searched]
        by_variant = looks(variants)
        pairs = [(by_variant[variant], each) for variant, each in zip(variants, searches.searched, strict=True)]
        handles = [
            line_handle(
                label=f"{variant.label}: {'none' if each.holds is None else f'{each.holds:g}'}",
                **{"color": look.colour, "ls": look.line, "lw": 1.4, "marker": look.marker, "mec": "white"},
            )
            for variant, (look, each) in zip(variants, pairs, strict=True)
        ]
    figure, axes = sheet(len(question.targets), title, 3.4, len(question.targets), sharex=True)
    for index, panel in enumerate(axes):
        _panel(panel, searches, index, pairs)
    legend(figure, *handles, ncols=5 if question.counts else 2)
    return Picture(NAME, title, figure, caption)


def _of_endpoint(one: Search) -> tuple[str, str]:
    """Title and caption."""
    counts = one.question.counts
    title = f"How many {counts}s it can handle: {'none' if one.holds is None else f'{one.holds:g}'}"
    if one.unmeasured is not None:
        title += f", {one.unmeasured:g} could not be measured"
    elif one.holds is not None and one.breaks is None:
        title += " or more"
    return title, (
        "A marker is one repeat, the line joins their medians. The shaded side misses the target. An arrow is a "
        f"percentile that failed turns make infinite. Made from {counted(len(one.tried), 'repeat')} at "
        f"{counted(len(one.steps), 'number')} of {counts}s: it {one.answer}"
    )


def _panel(panel: Axes, searches: Searches, index: int, pairs: Sequence[tuple[Look, Search]]) -> None:
    from matplotlib.ticker import MaxNLocator

    question = searches.question
    target = question.targets[index]
    factor, _ = scale(target.metric)
    series = [
        (style, one, [(t.value, v) for t in one.tried if (v := t.repeat.values[index]) is not None])
        for style, one in pairs
    ]
    arrow = targeted(panel, target, [v for _, _, points in series for _, v in points])
    for style, one, points in series:
        outcomes = {step.value: step.verdict for step in one.steps}
        for value, v in points:
            shown, marker = (factor * v, style.marker) if math.isfinite(v) else (arrow, "^")
            colour = _COLOURS[outcomes[value]] if question.counts else style.colour
            panel.plot(value, shown, marker, ms=4.5, mec="white", mew=0.6, color=colour, alpha=0.8, zorder=4)
        medians = {
            value: float(median(values)) for value in outcomes if (values := [v for at, v in points if at == value])
        }
        line = {value: factor * v for value, v in medians.items() if math.isfinite(v)}
        panel.plot(
            list(line), list(line.values()),
            **{"color": style.colour, "ls": style.line, "lw": 1.4, "alpha": 0.7, "zorder": 3} | joining(len(line)),
        )  # fmt: skip
        if _marks_held(one):
            colour = HEALTHY if question.counts else style.colour
            panel.axvline(one.holds or 0, color=colour, lw=1.3, ls=(0, (1, 2)), zorder=1)
    panel.set_xlim(left=0)
    panel.xaxis.set_major_locator(MaxNLocator(8, integer=question.bounds.whole))
    panel.set_xlabel(f"concurrent {question.counts}s" if question.counts else question.over)


def targeted(panel: Axes, target: Target, values: Iterable[float]) -> float:
    """Draw a target and the areas that meet and miss it, around values in the metric's own unit; returns the height, in
    the panel's unit, at which an infinite one can be marked."""
    factor, unit = scale(target.metric)
    bound = factor * target.bound
    finite = [bound, *(factor * value for value in values if math.isfinite(value))]
    low, high = min(finite), max(finite)
    margin = 0.1 * (high - low or abs(bound) or 1)
    upper = target.op == "<="
    bottom = 0.0 if upper and low >= 0 else max(0.0, low - margin) if low >= 0 else low - margin
    top = high + (2 * margin if upper else margin)  # room for infinite values
    if unit == "%" and bound <= 100:
        top = min(top, 103.0)
    above, below = ((BROKEN, "FAIL"), (HEALTHY, "PASS")) if upper else ((HEALTHY, "PASS"), (BROKEN, "FAIL"))
    for (colour, word), ends, up in ((above, (bound, top), 3), (below, (bottom, bound), -10)):
        panel.axhspan(*ends, color=colour, alpha=0.07, lw=0)
        note(panel, word, bound, up, x=0.01, colour=colour)
    panel.axhline(bound, color=BROKEN, lw=1.2, ls=(0, (5, 2)), zorder=2)
    note(panel, f"target {target.asked}", bound, 3 if upper else -10, colour=BROKEN)
    panel.set(ylim=(bottom, top), ylabel=f"{name_of(target.metric)}{f', {unit}' if unit else ''}")
    return top - margin / 2


def _marks_held(one: Search) -> bool:
    """Return whether the largest passing value gets a line: at an endpoint if more than one repeat passes."""
    return one.holds is not None and (not one.question.counts or len(one.step(one.holds).repeats) > 1)


def _outcomes(one: Search) -> list[Any]:
    """Handles of the legend at an endpoint."""
    handles = [
        line_handle(
            label="could not be measured" if verdict == "invalid" else verdict,
            **{"marker": "o", "ls": "none", "color": _COLOURS[verdict], "mec": "white"},
        )
        for verdict in dict.fromkeys(step.verdict for step in one.steps)
    ]
    if _marks_held(one):
        handles.append(line_handle(label=f"holds {one.holds:g}", color=HEALTHY, lw=1.2, ls=(0, (1, 2))))
    return handles
