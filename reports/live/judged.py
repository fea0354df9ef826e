"""The verdict on a live run as a picture: each target's metric over the load, with its target and its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.records.record import INVALID
from harness.slo.targets import FAIL, INCONCLUSIVE, PASS, Target, number, scale
from reports.figures import headline
from reports.figures.drawing import legend, sheet
from reports.figures.picture import LeftOut, Picture, line_handle
from reports.figures.search import targeted
from reports.figures.style import BROKEN, HEALTHY, INK, MUTED
from reports.live.live_verdict import LiveVerdict, Load, live_verdict, rows
from reports.runs.measured import Run
from reports.runs.part import Opening
from reports.tables.labels import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OTHERS = "targets"
_MARKS: dict[str, dict[str, Any]] = {
    PASS: {"marker": "o", "color": HEALTHY},
    FAIL: {"marker": "X", "color": BROKEN},
    INCONCLUSIVE: {"marker": "s", "color": INK, "mfc": "white"},
    INVALID: {"marker": "D", "color": MUTED, "mfc": "white"},
}
"""The look of a target's verdict; the form tells it without colour."""


def opening(run: Run) -> Opening | None:
    """Return the verdict and the table that it rests on; None for other runs. A search has its own first picture."""
    verdict = live_verdict(run)
    if verdict is None:
        return None
    return Opening(
        verdict.sentence,
        lambda: (draw(verdict), others(verdict)) if run.searches is None else (),
        verdict.verdict,
        "live/verdict.html.j2",
        {"verdict": verdict, "rows": rows(verdict)},
        verdict.asked.targets,
    )


def draw(verdict: LiveVerdict) -> Picture:
    """Draw the target that decided, over all loads."""
    from matplotlib.figure import Figure

    target = decisive(verdict)
    figure = Figure(figsize=(headline.WIDTH_IN, 3.6))
    axes = figure.subplots()
    title = f"{target}: {verdict.verdict}"
    figure.suptitle(title, x=0.012, ha="left", wrap=True)
    _panel(axes, verdict.loads, target)
    legend(figure, *_key(verdict, (target,)))
    return Picture(headline.NAME, title, figure, _caption(verdict, (target,)))


def others(verdict: LiveVerdict) -> Picture | LeftOut:
    """Draw the remaining targets, a panel each."""
    title, first = "The other targets", decisive(verdict)
    rest = [target for target in verdict.asked.targets if target != first]
    if not rest:
        return LeftOut(OTHERS, title, "there is one target")
    figure, panels = sheet(len(rest), title, 2.9, 2)
    for axes, target in zip(panels, rest, strict=True):
        _panel(axes, verdict.loads, target)
        axes.set_title(str(target))
    legend(figure, *_key(verdict, rest))
    return Picture(OTHERS, title, figure, _caption(verdict, rest))


def decisive(verdict: LiveVerdict) -> Target:
    """Return the target that made the verdict: the first one at the lowest load that has it; the first of all if every
    load passes."""
    for load in sorted(verdict.loads, key=lambda load: load.verdict != verdict.verdict):
        for judgement in load.result.judgements:
            if judgement.verdict == verdict.verdict:
                return judgement.target
    return verdict.asked.targets[0]


def _panel(axes: Axes, loads: Sequence[Load], target: Target) -> None:
    judgements = {
        place: judgement
        for place, load in enumerate(loads)
        for judgement in load.result.judgements
        if judgement.target == target and judgement.value is not None
    }
    ends = [end for each in judgements.values() for end in (each.value, *(each.interval or ()))]
    infinite = targeted(axes, target, [end for end in ends if end is not None])
    factor, _ = scale(target.metric)
    bottom, top = axes.get_ylim()

    def height(value: float, at: float) -> float:
        return factor * value if math.isfinite(value) else at

    values = {place: height(each.value or 0.0, infinite) for place, each in judgements.items()}
    counting = [place for place, each in judgements.items() if not each.invalid]
    axes.plot(counting, [values[place] for place in counting], color=MUTED, lw=1.2, zorder=3)
    for place, judgement in judgements.items():
        look = _MARKS[INVALID if judgement.invalid else judgement.verdict]
        if judgement.interval is not None:
            low, high = judgement.interval
            axes.plot(
                [place, place], [height(low, bottom if low < 0 else top), height(high, top)],
                color=look["color"], lw=5, alpha=0.3, zorder=3, solid_capstyle="butt",
            )  # fmt: skip
        axes.plot(place, values[place], ms=8, mew=1.4, ls="none", zorder=5, clip_on=False, **look)
        axes.annotate(
            number(target.metric, judgement.value or 0.0, unit=False), (place, values[place]), (8, 5),
            textcoords="offset points", color=look["color"], weight="bold",
        )  # fmt: skip
    axes.set_xticks(range(len(loads)), [load.short for load in loads])
    axes.set_xlim(-0.4, len(loads) - 0.45)
    unit = loads[-1].name.removeprefix(loads[-1].short).strip()
    axes.set_xlabel(unit if "second" in unit else f"concurrent {unit}" if unit else "load")


def _key(verdict: LiveVerdict, targets: Sequence[Target]) -> list[Any]:
    """Return the legend's entries, of the verdicts that are drawn."""
    judgements = [each for load in verdict.loads for each in load.result.judgements if each.target in targets]
    words = dict.fromkeys(INVALID if each.invalid else each.verdict for each in judgements if each.value is not None)
    return [
        *(line_handle(label=word, ls="none", **_MARKS[word]) for word in _MARKS if word in words),
        line_handle(label="95 % interval", color=MUTED, lw=5, alpha=0.3),
    ]


def _caption(verdict: LiveVerdict, targets: Sequence[Target]) -> str:
    runs = sum(len(load.result.measured) for load in verdict.loads)
    return (
        f"Over the loads, evenly spaced; the dashed line is the target{'' if len(targets) == 1 else ' of each panel'}. "
        "PASS: the whole interval lies on the green side; FAIL: all of it lies on the red side. An interval that "
        "reaches the edge has no end, as so few turns have none; ∞ is a percentile that failed turns make infinite. "
        f"Made from {counted(runs, 'run')} that {'counts' if runs == 1 else 'count'}."
    )
