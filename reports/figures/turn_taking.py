"""Turn-taking under load: each rate and each delay over the number of calls, and what patience trades between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reports.claims.published import Published
from reports.figures.drawing import in_per_cent, joining, legend, line, sheet, whole_numbers
from reports.figures.picture import LeftOut, Picture, at, made_from
from reports.figures.style import INK, looks
from reports.runs.measured import Measured, Run, Variant, over_seeds
from reports.tables.labels import setting, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME, TRADE = "turn_taking", "turn_taking_trade"
DELAYS = {
    "end_of_turn_delay_p50": "end-of-turn delay, P50",
    "end_of_turn_delay_p95": "end-of-turn delay, P95",
    "stop_p95": "time to stop, P95",
}
RATES = {
    "takeover": "takeover at hesitations",
    "false_interruption": "false interruptions",
    "interruption_recall": "interruptions noticed",
}
COLUMNS = 3
PATIENCE = ("silence_duration_ms", "eagerness", "turn_detection", "min_duration_s", "min_words")
"""Parameters of servers that say how long to wait, or how sure to be; the first that varies is drawn."""
DELAY, RATE = "end_of_turn_delay_p50", "takeover"


def draw(run: Run, paper: Sequence[Published] = ()) -> Picture | LeftOut:
    title = "Turn-taking over the number of calls"
    axis = next((name for name in ("c", "rate") if len(run.values(name)) > 1), None)
    if axis is None:
        return LeftOut(NAME, title, "it needs two loads or more (an axis c or rate)")
    where = at(run, (axis,))
    figure, panels = sheet(2, COLUMNS, ", ".join(filter(None, [title, setting(where)])), 2.7, sharex=True)
    used: list[Measured] = []
    for (metric, heading), panel in zip((DELAYS | RATES).items(), panels, strict=True):
        used += _panel(panel, run, axis, metric, heading)
    if not any(point.value(metric) is not None for point in used for metric in DELAYS | RATES):
        return LeftOut(NAME, title, "no finished point has these metrics")
    for panel in panels[-COLUMNS:]:
        panel.set_xlabel("calls at once" if axis == "c" else "calls a second")
        if axis == "c":
            whole_numbers(panel.xaxis)
    legend(panels[0])
    caption = (
        "Above: delays, for which lower is better. From the end of the user's turn to the first audible sound of the "
        "reply; from the begin of an interruption to the last sound of the reply that it cuts. Below: how often a "
        "reply began in a hesitation and how often something that was no turn cut a reply, for both of which lower "
        "is better, and how often an interruption did, for which higher is. n is of a run, over its loads. "
        + made_from(used, bars=True)
    )
    return Picture(NAME, title, figure, caption)


def _panel(axes: Axes, run: Run, axis: str, metric: str, heading: str) -> list[Measured]:
    factor = 1000 if metric in DELAYS else 1
    used: list[Measured] = []
    for variant, own in looks(run.variants).items():
        points = {value: run.at(variant, **at(run, (axis,)), **{axis: value}) for value in run.values(axis)}
        used += [point for found in points.values() for point in found]
        spreads = {value: over_seeds(found, metric) for value, found in points.items()}
        line(axes, spreads, own, variant.label, factor)
    n = [point.count(metric) for point in used if point.error is None]
    axes.set_title(f"{heading}, n = {min(n, default=0):,} to {max(n, default=0):,}", fontsize=9)
    if metric in DELAYS:
        axes.set(ylim=(0, None), ylabel="ms")
    else:
        in_per_cent(axes)
    return used


def trade(run: Run, paper: Sequence[Published] = ()) -> Picture | LeftOut:
    """Draw the costs and gains of a server's patience: the delay at the end of a turn against cutting into
    hesitations."""
    title = "End-of-turn delay against takeover at hesitations"
    axis = next((name for name in PATIENCE if len(run.values(name)) > 1), None)
    if axis is None:
        return LeftOut(TRADE, title, f"it needs an axis of the server's patience ({PATIENCE[0]} or another)")
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
        return LeftOut(TRADE, title, "no finished point has both metrics")
    panels[0].set_ylabel("hesitations taken for the end, %")
    panels[0].set_ylim(bottom=-2)
    panels[0].set_xlim(left=0)
    legend(panels[0])
    caption = (
        f"Nearer to the lower left corner is better. A marker is a value of {axis}, which stands beside it: who waits "
        "longer before a silence is an end cuts into fewer hesitations and answers every turn later. "
        + made_from(used, bars=True)
    )
    return Picture(TRADE, title, figure, caption)


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
