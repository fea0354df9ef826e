"""The latency of a throughput: completed turns a second against P90 of the wait, one curve an engine."""

from __future__ import annotations

from typing import Any

from reports.figures.forms import Plot, figure, lines
from reports.figures.picture import LeftOut, Picture, at, counts, labelled, over, points_of
from reports.runs.measured import Run
from reports.tables.labels import setting, short

NAME = "throughput_latency"


def draw(run: Run) -> Picture | LeftOut:
    metric, wait = ("audio_ttfp_p90", "TTFP") if run.spoken else ("ttft_p90", "TTFT")
    title = f"Throughput against P90 {wait} as the load grows"
    axis = next((name for name in ("c", "rate") if len(run.values(name)) > 1), None)
    if axis is None:
        return LeftOut(NAME, title, "it needs two loads or more (an axis c or rate)")
    chosen = [at(run, (axis,), p=p) for p in run.interruptions or [None]]

    def plot(params: dict[str, Any]) -> Plot:
        series = over(run, axis, **params)
        return lines(
            "completed_rps",
            series,
            against=metric,
            style=labelled(run),
            beside=lambda load: f"{axis}={short(load)}",
            title=", ".join(filter(None, [setting(params), counts(points_of(series), metric, "turns")])),
            xlim=(None, None),
            margins=(0.2, 0.14),
            ylabel="completed turns, 1/s",
        )

    caption = (
        "Up and to the left is better: more turns completed, with a shorter wait. Each marker is one load, "
        f"named by {axis}."
    )
    if axis == "c":
        caption += " The loop is closed: users who are answered or who listen longer also ask later."
    plots = [plot(params) for params in chosen]
    shared: dict[str, Any] = {"sharex": True, "sharey": True}
    return figure(title, *plots, name=NAME, columns=3, height_in=3.2, caption=caption, **shared)({})
