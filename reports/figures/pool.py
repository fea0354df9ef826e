"""Use of the KV pool over time, the linear prediction from the first minute, and the states of the requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reports.figures.dashboard import Series, bold, busiest
from reports.figures.drawing import in_per_cent, legend, sheet
from reports.figures.frames import curves, finished, fit_line, pool, running, waiting
from reports.figures.picture import LeftOut, Picture, line_handle, made_from
from reports.figures.style import INK, MUTED, Look
from reports.runs.measured import Measured, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "kv_pool"


def draw(run: Run) -> Picture | LeftOut:
    if run.live:
        return LeftOut(NAME, "KV pool over time", "over sockets a server's pool is unknown")
    return pool_and_queue(*busiest(run, "KV pool over time"))


def pool_and_queue(title: str, series: Series) -> Picture | LeftOut:
    """Occupancy with its fit above, requests that run and that wait below."""
    used: list[Measured] = [point for points, _ in series.values() for point in points]
    if not finished(used):
        return LeftOut(NAME, title, "no point of it is finished")
    figure, (upper, lower) = sheet(2, title, 2.6, 1, sharex=True)
    for label, (points, look) in series.items():
        occupancy(upper, points, label, look)
        curves(lower, points, running, look, label)
        for one in map(waiting, finished(points)[:1]):
            lower.plot(one.index, one, color=look.colour, lw=1.2, ls=(0, (4, 2)))
            lower.fill_between(one.index, one, color=look.colour, alpha=0.12, lw=0)
    upper.axhline(1, color=MUTED, lw=0.9)
    in_per_cent(upper, (0, 1.04))
    upper.set_ylabel("KV pool in use")
    lower.set(ylabel="requests", ylim=(0, None), xlabel="elapsed time, s")
    lower.set(xlim=(0, finished(used)[0].params["duration_s"]))
    handles = [
        line_handle(color=INK, lw=1.1, ls=(0, (1, 2)), label="fit of the first minute (eq. 1)"),
        line_handle(color=MUTED, marker="x", ls="none", ms=8, mew=2, label="saturation, measured"),
        line_handle(color=MUTED, lw=1.2, ls=(0, (4, 2)), label="waiting (one run)"),
    ]
    legend(figure, *handles)
    caption = (
        "Above, the share of KV blocks in use, each second. The dotted line is fitted to the first "
        "minute below 60 %; it meets 100 % at the predicted time of a full pool, and the cross is the "
        "measured time. Below: running requests (solid) and waiting ones (dashed). "
        f"{bold(used)}{made_from(used)}"
    )
    return Picture(NAME, title, figure, caption)


def occupancy(axes: Axes, points: Sequence[Measured], label: str, look: Look) -> None:
    """The pool of these runs, with the fit and the saturation of the first that has them."""
    curves(axes, points, pool, look, label)
    for point in finished(points)[:1]:
        fit_line(axes, point, look)
