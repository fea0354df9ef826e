"""Axes of a figure's forms: their names, units, ticks, bars and notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.metrics.stats import Spread
from reports.claims.quantities import Quantity
from reports.figures.drawing import in_per_cent, plain_log, whole_numbers
from reports.figures.picture import whiskers
from reports.figures.style import INK, MUTED, Look
from reports.tables.columns import column_for, spoken

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def axis_of(quantity: Quantity | None, side: str) -> dict[str, Any]:
    """Return the axis settings of a metric for that side; none for other quantities."""
    if not isinstance(quantity, str):
        return {}
    column = column_for(quantity)
    if column.unit.startswith("%"):
        share = {"percent": (0, 1)} if side == "y" else {}
        return {f"{side}label": spoken(column)} | share
    return {f"{side}label": f"{spoken(column)}, {column.unit}".rstrip(", ")} | (
        {"xlim": (0, None)} if side == "x" else {}
    )


def factor_of(axes: Mapping[str, Any], label: str) -> float:
    """Return the factor from the unit of quantities to the unit at the end of the axis label."""
    unit = axes.get(label, "").rpartition(", ")[2].partition(" ")[0]
    return 1e-3 if unit.startswith("1000") else {"ms": 1000.0, "%": 100.0}.get(unit, 1.0)


def name_markers(axes: Axes, named: Mapping[str, tuple[Any, float]], colour: str, below: bool) -> None:
    """Text on the outer side of a curve, so that two curves that meet keep theirs apart."""
    away, ha, va = ((6, -5), "left", "top") if below else ((-6, 5), "right", "bottom")
    for text, place in named.items():
        axes.annotate(text, place, away, textcoords="offset points", ha=ha, va=va, fontsize=8, color=colour)


def bar(
    axes: Axes,
    place: float,
    stats: Spread,
    look: Look,
    factor: float,
    width: float,
    label: str | None,
    text: str,
    lying: bool,
) -> None:
    """Draw a bar with its range over the seeds. `place`: its middle on the axis of groups; `text` formats the value."""
    height = factor * (stats.median or 0)
    x, y = (height, place) if lying else (place, height)
    (axes.barh if lying else axes.bar)(place, height, width, color=look.colour, label=label, zorder=2)
    if stats.n > 1:
        ends: dict[str, Any] = {"xerr" if lying else "yerr": whiskers(stats, factor)}
        axes.errorbar(x, y, **ends, color=INK, lw=0.9, zorder=3)
    if text:
        high = factor * (stats.high or 0)
        at, away, ha, va = (
            ((high, place), (5, 0), "left", "center") if lying else ((place, high), (0, 4), "center", "bottom")
        )
        axes.annotate(text.format(height), at, away, textcoords="offset points", ha=ha, va=va)


def name_groups(axes: Axes, groups: Sequence[Any], rows: bool) -> None:
    """Name the groups of bars at places 0, 1, ...; `rows`: on the y axis, the first one on top."""
    names = [str(group) for group in groups]
    if not rows:
        axes.set_xticks(range(len(names)), names)
        return
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)


def dress(
    axes: Axes,
    *,
    percent: tuple[float, float] | None = None,
    doubling: Sequence[float] = (),
    tilted: bool = False,
    whole: bool = False,
    margins: tuple[float, float] | None = None,
    across: Mapping[float, str] | None = None,
    upright: Mapping[float, str] | None = None,
    upwards: bool = True,
    **named: Any,
) -> None:
    """Apply the further names of a form. `upwards`: values are on the y axis."""
    if doubling:
        axes.set_xscale("log", base=2)
        axes.set_xticks(doubling, [f"{x:,g}" for x in doubling])
    for level, name in (across or {}).items():
        axes.axhline(level, color=MUTED, lw=0.9, ls=(0, (2, 3)), zorder=1, label=name or None)
    for place, name in (upright or {}).items():
        axes.axvline(place, color=MUTED, lw=0.9, ls=(0, (2, 3)), zorder=1, label=name or None)
    if margins is not None:
        axes.margins(*margins)
    if tilted:
        for label in axes.get_xticklabels():
            label.set(rotation=40, ha="right", rotation_mode="anchor")
    limits = {side: named.pop(f"{side}lim", None) for side in "xy"}
    axes.set(**named)
    for axis, scale in ((axes.xaxis, "xscale"), (axes.yaxis, "yscale")):
        if named.get(scale) == "log":
            plain_log(axis)
    if whole:
        whole_numbers(axes.xaxis)
    if percent is not None:
        in_per_cent(axes, percent)
    elif upwards and limits["y"] is None and axes.get_yscale() == "linear":
        lowest = min(ax.dataLim.y0 for ax in axes.get_shared_y_axes().get_siblings(axes))
        limits["y"] = (min(0.0, lowest), None)
    elif not upwards and limits["x"] is None and axes.get_xscale() == "linear":
        limits["x"] = (0, None)
    for set_limit, limit in ((axes.set_xlim, limits["x"]), (axes.set_ylim, limits["y"])):
        if limit is not None and limit != (None, None):
            set_limit(*limit, auto=None in limit)  # an open end follows the panels that share the axis
