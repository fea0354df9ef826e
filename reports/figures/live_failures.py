"""Why turns failed, counted at each load; a session that was turned away is one of them."""

from collections.abc import Sequence

import numpy as np

from reports.claims.published import Published
from reports.figures.drawing import few_loads, legend, load_colours, sheet
from reports.figures.picture import LeftOut, Picture
from reports.live.live_record import all_of, failures_by_reason, loads
from reports.runs.measured import Run

NAME = "failures_by_reason"
_REASONS = 12
"""Rows; rarer ones are in the table."""


def draw(run: Run, paper: Sequence[Published] = ()) -> Picture | LeftOut:
    from matplotlib.ticker import MaxNLocator

    title = "Failures by reason"
    rows = failures_by_reason(run)
    if not rows:
        return LeftOut(NAME, title, "nothing failed")
    every = loads(run)
    shown = few_loads(range(len(every)))
    drawn = [row for row in rows if any(row["counts"][index] for index in shown)][:_REASONS]
    figure, (axes,) = sheet(1, title, 1.1 + 0.32 * len(drawn))
    left, place = np.zeros(len(drawn)), np.arange(len(drawn))
    for index, colour in zip(shown, load_colours(len(shown)), strict=True):
        counts = np.array([row["counts"][index] for row in drawn])
        axes.barh(place, counts, left=left, height=0.7, color=colour, label=every[index].label(run))
        left += counts
    for y, total in zip(place, left, strict=True):
        axes.annotate(
            f"{total:,.0f}", (total, y), (4, 0), textcoords="offset points", va="center", fontsize=9
        )
    axes.set_yticks(place, [row["reason"] for row in drawn])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.08)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel("failed turns")
    legend(figure)
    more = f" {len(rows) - len(drawn)} rarer reasons are in the table." if len(rows) > len(drawn) else ""
    used = [point for index in shown for point in every[index].points]
    caption = (
        "Every one of them stays in the denominators; a session that was turned away counts once."
        f"{more} {all_of(used)}"
    )
    return Picture(NAME, title, figure, caption)
