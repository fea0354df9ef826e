"""Capacity: what was measured at each number of calls, and the largest that met every target in every repeat."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from harness.live.capacity import CAPACITY, EARLIER_NAME, Capacity, Step, answer, from_dict
from harness.targets import SIGN, Target, name_of, number
from reports.figures.drawing import sheet
from reports.figures.picture import LeftOut, Picture, counted
from reports.measured import Run
from reports.paper import Published
from reports.style import BROKEN, HEALTHY, INK, MUTED
from workloads.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "capacity_search"
_COLOUR = {"passes": HEALTHY, "fails": BROKEN, "invalid": MUTED}


def load_capacity(run: Run) -> Capacity | None:
    """What a search left beside these points; None where there was none. UserError for a damaged file."""
    path = next((p for p in (run.folder / CAPACITY, run.folder / EARLIER_NAME) if p.is_file()), None)
    if path is None:
        return None
    try:
        capacity = from_dict(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{path} is damaged; delete it and search again.") from None
    # Another run into the same directory may have come after the search.
    searched = {repeat.point for step in capacity.steps for repeat in step.repeats}
    return capacity if searched <= {point.point.id for point in run.points} else None


def draw(run: Run, paper: Sequence[Published] = ()) -> Picture | LeftOut:
    capacity = load_capacity(run)
    if capacity is None or not capacity.steps:
        return LeftOut(NAME, "How many calls it holds", "no search was made (rehearse live --find)")
    title = "How many calls it holds: " + (str(capacity.holds) if capacity.holds is not None else "none")
    if capacity.holds is not None and capacity.breaks is None:
        title += " or more"
    figure, axes = sheet(1, len(capacity.targets), title, 3.1, sharex=True)
    for index, (target, panel) in enumerate(zip(capacity.targets, axes, strict=True)):
        _panel(panel, capacity, index, target)
    figure.legend(handles=_handles(capacity), loc="outside lower left", ncols=5)
    repeats = sum(len(step.repeats) for step in capacity.steps)
    caption = (
        "A marker is one repeat, the line joins their medians. The shaded side misses the target. A number of calls "
        "passes when every repeat meets every target; an arrow is a percentile that failed turns make infinite. "
        f"Made from {counted(repeats, 'repeat')} at {counted(len(capacity.steps), 'number')} of calls: "
        f"{answer(capacity)}"
    )
    return Picture(NAME, title, figure, caption)


def _panel(axes: Axes, capacity: Capacity, index: int, target: Target) -> None:
    from matplotlib.ticker import MaxNLocator

    factor, unit = _scale(target)
    values = {
        step: [factor * v for r in step.repeats if (v := r.values[index]) is not None]
        for step in capacity.steps
    }
    finite = [v for found in values.values() for v in found if math.isfinite(v)]
    bound = factor * target.bound
    low, high = min([*finite, bound]), max([*finite, bound])
    margin = 0.08 * (high - low or abs(bound) or 1)
    bottom, top = max(0.0, low - margin) if low >= 0 else low - margin, high + 2 * margin
    xs, medians = [], []
    for step, found in values.items():
        for value in found:
            shown, marker = (value, "o") if math.isfinite(value) else (top - margin / 2, "^")
            axes.plot(step.sessions, shown, marker, ms=6, mec="white", color=_COLOUR[step.verdict], zorder=4)
        if found and math.isfinite(np.median(found)):
            xs.append(step.sessions)
            medians.append(float(np.median(found)))
    axes.plot(xs, medians, color=INK, lw=1.2, alpha=0.6, zorder=3)
    missed = (bound, top) if target.op == "<=" else (bottom, bound)
    axes.axhspan(*missed, color=BROKEN, alpha=0.06, lw=0)
    axes.axhline(bound, color=BROKEN, lw=1.2, ls=(0, (5, 2)), zorder=2)
    said = f"target {SIGN[target.op]} {number(target.metric, target.bound)}"
    axes.annotate(
        said, (0.99, bound), xycoords=("axes fraction", "data"),
        xytext=(0, 3 if target.op == "<=" else -10), textcoords="offset points", fontsize=8, color=BROKEN, ha="right",
    )  # fmt: skip
    if (holds := _line(capacity)) is not None:
        axes.axvline(holds, color=HEALTHY, lw=1.2, ls=(0, (1, 2)), zorder=1)
    axes.set_ylim(bottom, top)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel("calls at once")
    axes.set_ylabel(f"{name_of(target.metric)}{f', {unit}' if unit else ''}")


def _line(capacity: Capacity) -> int | None:
    """How many calls it holds, where more than one repeat says so: of one alone no line is drawn."""
    holds = capacity.holds
    return holds if holds is not None and len(capacity.step(holds).repeats) > 1 else None


def _scale(target: Target) -> tuple[float, str]:
    """Factor and unit in which `harness.targets.number` writes the metric."""
    text = number(target.metric, 1.0)
    return (100.0, "%") if text.endswith("%") else (1.0, text.partition(" ")[2])


def _handles(capacity: Capacity) -> list:
    from matplotlib.lines import Line2D

    names = {"passes": "passes", "fails": "fails", "invalid": "could not be measured"}
    there = dict.fromkeys(step.verdict for step in capacity.steps)
    handles = [
        Line2D([], [], marker="o", ms=6, mec="white", ls="none", color=_COLOUR[verdict], label=names[verdict])
        for verdict in there
    ]
    if (holds := _line(capacity)) is not None:
        handles.append(Line2D([], [], color=HEALTHY, lw=1.2, ls=(0, (1, 2)), label=f"holds {holds}"))
    return handles


def headings(capacity: Capacity) -> list[str]:
    """Every target in words."""
    return [f"{name_of(t.metric)} {SIGN[t.op]} {number(t.metric, t.bound)}" for t in capacity.targets]


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
