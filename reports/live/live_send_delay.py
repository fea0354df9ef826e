"""Send delay of the load generator: share of messages later than x, the limit, and the null server's floor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from harness.live.validity import MOST_LATE
from reports.figures.drawing import few_loads, legend, load_colours, note, plain, sheet
from reports.figures.picture import LeftOut, Picture, line_handle
from reports.figures.style import BROKEN, INK, MUTED
from reports.live.live_record import (
    SEND_DELAY_P50,
    SEND_DELAY_P99,
    all_of,
    delays_s,
    floor_over,
    loads,
    send_delay_limit_s,
)
from reports.runs.measured import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "send_delay"
LEAST_MS = 0.01
"""Left edge of the axis; timers that fire within their microsecond are drawn there too."""
_POINTS = 2000
"""Points of a curve; more cannot be seen."""


def draw(run: Run) -> Picture | LeftOut:
    title = "Send delay: lateness of the generator's messages"
    shown = few_loads([load for load in loads(run) if delays_s(load.points).size])
    if not shown:
        return LeftOut(NAME, title, "nothing was sent")
    figure, (axes,) = sheet(1, title, 3.4)
    least = 1.0
    for load, colour in zip(shown, load_colours(len(shown)), strict=True):
        delays = delays_s(load.points)
        ranks = np.unique(np.geomspace(1, delays.size, _POINTS).astype(int))[::-1]  # of the latest ones every one
        values = np.maximum(1000 * delays[delays.size - ranks], LEAST_MS)
        least = min(least, 1 / delays.size)
        axes.step(values, ranks / delays.size, where="post", color=colour, lw=1.8, label=load.label(run))
        for name, share in ((SEND_DELAY_P50, 0.5), (SEND_DELAY_P99, 0.01)):
            level = floor_over(load.points, name)
            if level is not None:
                axes.plot(max(1000 * level, LEAST_MS), share, "o", ms=6, mfc="white", mec=colour, mew=1.4, zorder=5)
    _axes(axes, send_delay_limit_s([point for load in shown for point in load.points]), least)
    hollow: dict[str, Any] = {"marker": "o", "ms": 6, "mfc": "white", "mec": MUTED, "ls": "none"}
    legend(figure, line_handle(**hollow, label="floor: null server"))
    used = [point for load in shown for point in load.points]
    caption = (
        "Further left is better. A curve gives the share of messages (audio, commits, acks, requests) "
        "that left later than the time on the horizontal axis, both scales logarithmic; where it "
        "crosses the dotted line is its P99. A point is INVALID if its curve enters the shaded area: more than "
        f"{100 * MOST_LATE:g} % of its messages were later than the limit. Hollow markers are P50 and P99 of the same "
        "generator against the null server just before: this machine's best. Messages are pooled over "
        f"seeds. {all_of(used)}"
    )
    return Picture(NAME, title, figure, caption)


def _axes(axes: Axes, limit_s: float | None, least: float) -> None:
    from matplotlib.ticker import FuncFormatter

    axes.set(xscale="log", yscale="log")
    axes.axhline(0.01, color=INK, lw=0.8, ls=(0, (1, 2)), zorder=1)
    right = max(axes.get_xlim()[1], 2000 * limit_s if limit_s else 0)
    axes.set(xlim=(LEAST_MS, right), ylim=(min(least, 0.001), 1.1))
    if limit_s is not None:
        axes.axvline(1000 * limit_s, color=BROKEN, lw=1.4, ls=(0, (5, 2)), zorder=1)
        axes.fill_between([1000 * limit_s, right], MOST_LATE, 1.1, color=BROKEN, alpha=0.08, lw=0)
        axes.annotate(
            f"INVALID if more than\n{100 * MOST_LATE:g} % are beyond {1000 * limit_s:g} ms",
            (1000 * limit_s, 0.97), xytext=(5, 0),
            xycoords=("data", "axes fraction"), textcoords="offset points", fontsize=8, color=BROKEN, va="top",
        )  # fmt: skip
    note(axes, "P99", 0.01, 3, x=0.995)
    plain(axes.xaxis)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    axes.set(xlabel="send delay, ms (log scale)", ylabel="share of messages sent later")
