"""Admission: sessions, cap and rejections over time, and the latency that decided it (Metronome, Fig. 7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from reports.figures.dashboard import Series, busiest
from reports.figures.drawing import legend, note, sheet, totals, whole_numbers
from reports.figures.frames import answered, finished, latency_axes
from reports.figures.picture import LeftOut, Picture, made_from
from reports.figures.style import BROKEN, INK, MUTED, Look
from reports.runs.measured import Measured, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "admission"


def draw(run: Run) -> Picture | LeftOut:
    title = "Admission: admitted sessions, and the latency that decided it"
    if not any(controlled(point) for point in finished(run.points)):
        return LeftOut(NAME, title, "no session was rejected and no controller was on")
    return ramps(*busiest(run, title))


def controlled(point: Measured) -> bool:
    """Return whether a controller was on, or users were rejected."""
    return point.params.get("admission", "off") != "off" or bool(point.value("shed"))


def ramps(title: str, series: Series, paper: Mapping[str, float] | None = None) -> Picture | LeftOut:
    """A column for each policy: sessions above, latency below; of the first finished run of each.

    `paper`: label -> sessions at which the paper's run settled.
    """
    first = {label: (runs[0], look) for label, (points, look) in series.items() if (runs := finished(points))}
    if not first:
        return LeftOut(NAME, title, "no point of it is finished")
    figure, axes = sheet(2 * len(first), title, 2.7, len(first), sharex=True, sharey="row")
    above, below = axes[: len(first)], axes[len(first) :]
    for (label, (point, look)), upper, lower in zip(first.items(), above, below, strict=True):
        sessions(upper, point, look)
        if (settled := (paper or {}).get(label)) is not None:
            upper.axhline(settled, color=MUTED, lw=1, ls=(0, (5, 2)), label=f"paper: {settled:g}")
        latency_of_ticks(lower, point, look)
        upper.set_title(label, color=look.colour, weight="bold", fontsize=9)
        lower.set(xlabel="elapsed time, s", xlim=(0, point.params["duration_s"]))
    above[0].set_ylabel("sessions")
    whole_numbers(above[0].yaxis)
    above[0].set_ylim(bottom=0)
    for panel in [*above[1:], *below[1:]]:
        panel.set_ylabel("")
    legend(figure)
    used = [point for point, _ in first.values()]
    caption = (
        "Above: admitted sessions, the total of rejected ones, and the controller's cap. Sessions "
        "last to the end of the run, so a lower cap admits none and ends none. Below: the highest "
        "latency of each tick's frames, first frames included, and the latency at which the "
        "controller reduces its cap; grey: the deadline (dashed) and the longest wait of a tick "
        f"(dotted). {made_from(used)}"
    )
    return Picture(NAME, title, figure, caption)


def sessions(axes: Axes, point: Measured, look: Look) -> None:
    """Admitted, shed and the cap over time."""
    log = point.kinds("admitted", "shed", "cap")
    end_s = point.params["duration_s"]
    for kind, colour, line in (("admitted", look.colour, "-"), ("shed", BROKEN, "--")):
        totals(axes, log.loc[log["kind"] == kind, "t"], end_s, color=colour, ls=line, lw=2, label=kind)
    caps = log["kind"] == "cap"
    if caps.to_numpy().any():
        axes.step(
            log.loc[caps, "t"], log.loc[caps, "value"], where="post", color=INK, lw=1.1, ls=(0, (1, 1)), label="cap"
        )


def latency_of_ticks(axes: Axes, point: Measured, look: Look) -> None:
    """The highest latency of each tick, and the target."""
    highest = tick_latency(point)
    axes.plot(highest.index, 1000 * highest, color=look.colour, lw=1.3)
    latency_axes(axes, point, named=False)
    if "target_share" in point.params:
        target_ms = 1000 * point.params["target_share"] * point.params["frame_s"]
        axes.axhline(target_ms, color=BROKEN, lw=1, ls=(0, (4, 2)), zorder=1)
        note(axes, f"target {target_ms:g} ms", target_ms, -9)


def tick_latency(point: Measured) -> pd.Series:
    """The highest latency in s of the frames of each tick, by its dispatch."""
    dispatch_s, latency_s = answered(point)
    times, place = np.unique(dispatch_s, return_inverse=True)
    highest = np.zeros(times.size)
    np.maximum.at(highest, place, latency_s)
    return pd.Series(highest, times)
