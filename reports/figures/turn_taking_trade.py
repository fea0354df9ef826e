"""What a server's patience costs and gains: the delay at the end of a turn against cutting into hesitations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reports.claims.published import Published
from reports.figures.drawing import joining, legend, sheet
from reports.figures.picture import LeftOut, Picture, at, made_from, setting, short
from reports.figures.style import INK, looks
from reports.runs.measured import Measured, Run, Variant, over_seeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "turn_taking_trade"
PATIENCE = ("silence_duration_ms", "eagerness", "turn_detection", "min_duration_s", "min_words")
"""Parameters of servers that say how long to wait, or how sure to be; the first that varies is drawn."""
DELAY, RATE = "end_of_turn_delay_p50", "takeover"


def draw(run: Run, paper: Sequence[Published] = ()) -> Picture | LeftOut:
    title = "End-of-turn delay against takeover at hesitations"
    axis = next((name for name in PATIENCE if len(run.values(name)) > 1), None)
    if axis is None:
        return LeftOut(NAME, title, f"it needs an axis of the server's patience ({PATIENCE[0]} or another)")
    loads = run.values("c")
    chosen = sorted({loads[0], loads[-1]}) if loads else [None]
    figure, panels = sheet(1, len(chosen), f"{title}, by {axis}", 3.5, sharex=True, sharey=True)
    used: list[Measured] = []
    for load, panel in zip(chosen, panels, strict=True):
        for variant, own in looks(run.variants).items():
            points = {
                value: run.at(variant, **at(run, (axis,), c=load), **{axis: value})
                for value in run.values(axis)
            }
            used += [point for found in points.values() for point in found]
            _curve(panel, points, variant, own.joined)
        panel.set_title(setting({"c": load}) or "all calls")
        panel.set_xlabel("end-of-turn delay P50, ms")
    if not any(point.value(RATE) is not None and point.value(DELAY) is not None for point in used):
        return LeftOut(NAME, title, "no finished point has both metrics")
    panels[0].set_ylabel("hesitations taken for the end, %")
    panels[0].set_ylim(bottom=-2)
    panels[0].set_xlim(left=0)
    legend(figure, panels[0])
    caption = (
        f"Nearer to the lower left corner is better. A marker is a value of {axis}, which stands beside it: who waits "
        "longer before a silence is an end cuts into fewer hesitations and answers every turn later. "
        + made_from(used, bars=True)
    )
    return Picture(NAME, title, figure, caption)


def _curve(axes: Axes, points: dict[Any, list[Measured]], variant: Variant, joined: dict[str, Any]) -> None:
    spreads = {value: (over_seeds(found, DELAY), over_seeds(found, RATE)) for value, found in points.items()}
    known = {
        value: (1000 * delay.median, 100 * rate.median)
        for value, (delay, rate) in spreads.items()
        if delay.median is not None and rate.median is not None
    }
    axes.plot(
        [x for x, _ in known.values()],
        [y for _, y in known.values()],
        **joined | joining(len(known)),
        label=variant.label,
        zorder=4,
    )
    for value, (x, y) in known.items():
        axes.annotate(
            short(value), (x, y), xytext=(5, 5), textcoords="offset points", fontsize=8, color=INK, zorder=5
        )
