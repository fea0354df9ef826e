"""Capacity: what was measured at each number of calls, and the largest that met every target in every repeat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from harness.live.capacity import Capacity, Step, answer
from harness.slo.targets import Target, number, scale
from reports.claims.published import Published
from reports.figures.drawing import joining, sheet
from reports.figures.picture import LeftOut, Picture
from reports.figures.style import BROKEN, HEALTHY, INK, MUTED
from reports.figures.targets import target_panel
from reports.live.live_record import load_capacity
from reports.runs.measured import Run
from reports.tables.labels import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "capacity_search"
_COLOUR = {"passes": HEALTHY, "fails": BROKEN, "undecided": INK, "invalid": MUTED}


def draw(run: Run, paper: Sequence[Published] = ()) -> Picture | LeftOut:
    capacity = load_capacity(run)
    if capacity is None or not capacity.steps:
        return LeftOut(NAME, "How many calls it can handle", "no search was made (rehearse live --find)")
    title = f"How many {capacity.counts}s it can handle: " + (
        "none" if capacity.holds is None else f"{capacity.holds:g}"
    )
    if capacity.unmeasured is not None:
        title += f", {capacity.unmeasured:g} could not be measured"
    elif capacity.holds is not None and capacity.breaks is None:
        title += " or more"
    figure, axes = sheet(1, len(capacity.targets), title, 3.1, sharex=True)
    for index, (target, panel) in enumerate(zip(capacity.targets, axes, strict=True)):
        _panel(panel, capacity, index, target)
    figure.legend(handles=_handles(capacity), loc="outside lower left", ncols=5)
    repeats = sum(len(step.repeats) for step in capacity.steps)
    caption = (
        "A marker is one repeat, the line joins their medians. The shaded side misses the target. An arrow is a "
        f"percentile that failed turns make infinite. Made from {counted(repeats, 'repeat')} at "
        f"{counted(len(capacity.steps), 'number')} of {capacity.counts}s: it {answer(capacity)}"
    )
    return Picture(NAME, title, figure, caption)


def _panel(axes: Axes, capacity: Capacity, index: int, target: Target) -> None:
    from matplotlib.ticker import MaxNLocator

    factor, _ = scale(target.metric)
    values = {
        step: [v for r in step.repeats if (v := r.values[index]) is not None] for step in capacity.steps
    }
    arrow = target_panel(axes, target, [value for found in values.values() for value in found])
    xs, medians = [], []
    for step, found in values.items():
        for value in found:
            shown, marker = (factor * value, "o") if math.isfinite(value) else (arrow, "^")
            axes.plot(step.sessions, shown, marker, ms=6, mec="white", color=_COLOUR[step.verdict], zorder=4)
        if found and math.isfinite(np.median(found)):
            xs.append(step.sessions)
            medians.append(factor * float(np.median(found)))
    axes.plot(xs, medians, **{"color": INK, "lw": 1.2, "alpha": 0.6, "zorder": 3} | joining(len(xs)))
    if (holds := _line(capacity)) is not None:
        axes.axvline(holds, color=HEALTHY, lw=1.2, ls=(0, (1, 2)), zorder=1)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel(f"concurrent {capacity.counts}s")


def _line(capacity: Capacity) -> float | None:
    """How many calls it holds, where more than one repeat says so: of one alone no line is drawn."""
    holds = capacity.holds
    return holds if holds is not None and len(capacity.step(holds).repeats) > 1 else None


def _handles(capacity: Capacity) -> list:
    from matplotlib.lines import Line2D

    names = {
        "passes": "passes",
        "fails": "fails",
        "undecided": "undecided",
        "invalid": "could not be measured",
    }
    there = dict.fromkeys(step.verdict for step in capacity.steps)
    handles = [
        Line2D([], [], marker="o", ms=6, mec="white", ls="none", color=_COLOUR[verdict], label=names[verdict])
        for verdict in there
    ]
    if (holds := _line(capacity)) is not None:
        handles.append(Line2D([], [], color=HEALTHY, lw=1.2, ls=(0, (1, 2)), label=f"holds {holds:g}"))
    return handles


def headings(capacity: Capacity) -> list[str]:
    """Every target in words."""
    return [str(target) for target in capacity.targets]


def capacity_rows(capacity: Capacity) -> list[dict[str, object]]:
    """A row for each number of calls: every target's median with its range, and whether it passes."""
    return [
        {
            "sessions": step.sessions,
            "values": [_told(step, index, target) for index, target in enumerate(capacity.targets)],
            "verdict": step.verdict,
            "colour": {"passes": "better", "fails": "worse"}.get(step.verdict, ""),
            "repeats": len(step.repeats),
        }
        for step in capacity.steps
    ]


def _told(step: Step, index: int, target: Target) -> dict[str, str]:
    known = sorted(value for repeat in step.repeats if (value := repeat.values[index]) is not None)
    if not known:
        return {"median": "–", "range": ""}
    ends = [number(target.metric, value) for value in (known[0], known[-1])]
    median = number(target.metric, float(np.median(known)))
    return {"median": median, "range": f"{ends[0]} to {ends[1]}" if len(known) > 1 else ""}
