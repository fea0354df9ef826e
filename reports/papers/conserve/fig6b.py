"""Fig. 6b: attainment and offline throughput over the scale of the SLO, 2 requests/s."""

from collections.abc import Mapping
from typing import Any

from harness.metrics.stats import across_seeds
from reports.figures.drawing import legend, line, sheet
from reports.figures.picture import LeftOut, Picture, made_from
from reports.measured import Measured, Run, over_seeds
from reports.papers.conserve.common import (
    BOTH,
    NON_PREEMPTIVE,
    OURS,
    SARATHI,
    SLO,
    TPS,
    at,
    attained,
    both,
    looks,
)
from reports.quantities import minus, over_points, quotient, smallest, value
from reports.stated import claim, level

TITLE = "Fig. 6b: how many online requests keep the SLO, and what the batch gets, over its scale"

_LIMITS = SLO["rate 2"]
SCALES = (1.0, 1.25, 1.5, 2.0)
EXPERIMENTS = {
    f"scale {scale:g}: {BOTH}": both(f"scale {scale:g}", _LIMITS, scale, [OURS]) for scale in SCALES
} | {f"fixed: {BOTH}": both("fixed", _LIMITS, engines=[NON_PREEMPTIVE, SARATHI])}
QUICK = {"requests": "40"}

PAPER = {1.0: 0.86, 1.5: 0.99}


def _ours(scale: float) -> Any:
    return value(attained(_LIMITS, scale), at(f"scale {scale:g}", OURS))


def _of_optimal(scale: float) -> Any:
    return quotient(value(TPS, at(f"scale {scale:g}", OURS)), value(TPS, at("fixed", NON_PREEMPTIVE)))


CLAIMS = [
    claim(
        "fig6b-at-1",
        "at s = 1.0 at least 86 % of online requests keep both limits",
        level((0.86, 1.0), "%"),
        _ours(1.0),
        "{percent:.0f} %: a prompt that is read in two steps is late, and t_TBT is just one without replies in it",
    ),
    claim(
        "fig6b-above-1",
        "above s = 1 more than 99 % do (lowest share)",
        level((0.99, 1.0), "%", within=0.005),
        smallest(*(_ours(scale) for scale in SCALES[1:])),
        "{percent:.0f} %: who comes while another's prompt is read waits for the end of a filled step",
    ),
    claim(
        "fig6b-optimal",
        "at s = 1.5 93 % of the optimal offline throughput",
        level(0.93, "%", within=0.07),
        _of_optimal(1.5),
        "{percent:.0f} %",
    ),
    claim(
        "fig6b-beyond",
        "beyond s = 1.5 it grows by 2 % more",
        level((0.0, 0.02), "%", within=0.02),
        minus(_of_optimal(2.0), _of_optimal(1.5)),
        "{percent:.0f} points: arithmetic binds steps of the lower limit already; with the higher one online requests "
        "stay longer, and documents give blocks back to them",
    ),
]


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """Attainment and throughput over the scale; the baselines know no scale and are held to it all the same."""
    figure, axes = sheet(1, 2, TITLE)
    used: list[Measured] = []
    for engine, look in looks().items():
        if engine not in (OURS, NON_PREEMPTIVE, SARATHI):
            continue
        points = {s: at(f"scale {s:g}" if engine == OURS else "fixed", engine).points(panels) for s in SCALES}
        used += [point for found in points.values() for point in found]
        kept = {s: across_seeds(over_points(attained(_LIMITS, s), found)) for s, found in points.items()}
        line(axes[0], kept, look, engine, 100)
        line(axes[1], {s: over_seeds(found, TPS) for s, found in points.items()}, look, engine, 1e-3)
    if all(point.error is not None for point in used):
        return LeftOut("fig6b", TITLE, "no point of it is finished")
    for own, label in zip(
        axes, ("online requests that keep the SLO, %", "offline tokens, 1000/s"), strict=True
    ):
        own.set_ylim(bottom=0)
        own.set_xlabel("scale of the SLO")
        own.set_ylabel(label)
    legend(figure, axes[0])
    caption = "The paper: 86 % at 1.0, more than 99 % above, flat baselines."
    return Picture("fig6b", TITLE, figure, f"{caption} {made_from(used, bars=True)}")
