"""Turn-taking under load: each rate and each delay over the number of calls, and what patience trades between them."""

from __future__ import annotations

from typing import Any

from reports.figures.forms import Plot, figure, lines
from reports.figures.picture import LeftOut, Picture, at, labelled, over, points_of
from reports.runs.measured import Run
from reports.tables.labels import setting, short

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
PATIENCE = ("silence_duration_ms", "eagerness", "turn_detection", "min_duration_s", "min_words")
"""Parameters of servers for the waiting time or the certainty of an end of turn; the first that varies is drawn."""
DELAY, RATE = "end_of_turn_delay_p50", "takeover"


def draw(run: Run) -> Picture | LeftOut:
    title = "Turn-taking over the number of calls"
    axis = next((name for name in ("c", "rate") if len(run.values(name)) > 1), None)
    if axis is None:
        return LeftOut(NAME, title, "it needs two loads or more (an axis c or rate)")
    where, series = at(run, (axis,)), over(run, axis)
    used = points_of(series)

    def plot(metric: str, heading: str) -> Plot:
        n = [point.count(metric) for point in used if point.error is None]
        heading = f"{heading}, n = {min(n, default=0):,} to {max(n, default=0):,}"
        unit: dict[str, Any] = {"ylabel": "ms"} if metric in DELAYS else {"ylabel": "", "percent": (0, 1)}
        return lines(metric, series, style=labelled(run), title=heading, **unit | ends)

    ends: dict[str, Any] = {"xlabel": "calls at once" if axis == "c" else "calls a second", "whole": axis == "c"}
    caption = (
        "Above: delays, lower is better: from the end of the user's turn to the first audible sound "
        "of the reply; from the begin of an interruption to the last sound of the reply that it cuts. "
        "Below: share of replies that began in a hesitation, and of sounds that were not turns but "
        "cut a reply (both: lower is better); and share of interruptions that cut a reply (higher is "
        "better). n is of a run, over its loads."
    )
    title = ", ".join(filter(None, [title, setting(where)]))
    plots = [plot(*each) for each in (DELAYS | RATES).items()]
    shown = figure(title, *plots, name=NAME, columns=3, height_in=2.7, caption=caption)
    return shown({})


def trade(run: Run) -> Picture | LeftOut:
    """Draw the costs and gains of a server's patience: the delay at the end of a turn against cutting into
    hesitations."""
    title = "End-of-turn delay against takeover at hesitations"
    axis = next((name for name in PATIENCE if len(run.values(name)) > 1), None)
    if axis is None:
        return LeftOut(TRADE, title, f"it needs an axis of the server's patience ({PATIENCE[0]} or another)")
    loads = run.values("c")
    by_load = {load: over(run, axis, c=load) for load in (sorted({loads[0], loads[-1]}) if loads else [None])}
    plots = [
        lines(
            RATE,
            series,
            against=DELAY,
            style=labelled(run),
            beside=short,
            title=setting({"c": load}) or "all calls",
            xlabel="end-of-turn delay P50, ms",
            ylabel="hesitations taken for the end",
        )
        for load, series in by_load.items()
    ]
    caption = (
        f"Nearer to the lower left corner is better. Each marker is labelled with its value of {axis}: "
        "a server that waits longer interrupts fewer hesitations and answers every turn later."
    )
    title = f"{title}, by {axis}"
    shared: dict[str, Any] = {"sharex": True, "sharey": True}
    return figure(title, *plots, name=TRADE, height_in=3.5, caption=caption, **shared)({})
