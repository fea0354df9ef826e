"""The panel of a metric that has a target: its scale, the target's line, and the side that misses it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from harness.slo.targets import Target, name_of, scale
from reports.figures.drawing import note
from reports.figures.style import BROKEN

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def target_panel(panel: Axes, target: Target, values: Iterable[float]) -> float:
    """Draw what belongs to the target around values in the metric's own unit; returns the height, in the panel's unit,
    at which an infinite one can be marked."""
    factor, unit = scale(target.metric)
    bound = factor * target.bound
    finite = [bound, *(factor * value for value in values if math.isfinite(value))]
    low, high = min(finite), max(finite)
    margin = 0.08 * (high - low or abs(bound) or 1)
    bottom, top = max(0.0, low - margin) if low >= 0 else low - margin, high + margin
    if target.op == "<=":
        top += margin  # room for the target's label, and for infinite values
    missed = (bound, top) if target.op == "<=" else (bottom, bound)
    panel.axhspan(*missed, color=BROKEN, alpha=0.06, lw=0)
    panel.axhline(bound, color=BROKEN, lw=1.2, ls=(0, (5, 2)), zorder=2)
    note(panel, f"target {target.asked}", bound, 3 if target.op == "<=" else -10, colour=BROKEN)
    panel.set(ylim=(bottom, top), ylabel=f"{name_of(target.metric)}{f', {unit}' if unit else ''}")
    return top - margin / 2
