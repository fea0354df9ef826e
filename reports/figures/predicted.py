"""Predicted over measured: a dot for each request of real runs, and a cross for each experiment known in sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from harness.truth.truth_report import Report
from reports.figures.drawing import identity, legend, plain_log, sheet
from reports.figures.picture import Picture
from reports.figures.style import MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LATENCIES = {
    "ttft": ("time to first token", 1e3, "ms"),
    "itl": ("inter-token latency", 1e3, "ms"),
    "e2e": ("end to end", 1.0, "s"),
}
LOOKS = {
    "below saturation": ("#0072b2", "o"),
    "saturated": ("#d55e00", "o"),
    "in sum": ("#009e73", "x"),
}
BAND = 0.10


def draw(report: Report, requests: pd.DataFrame) -> Picture:
    """`requests`: as `harness.truth.truth_report.store` keeps them."""
    title = "Virtual time held against real servers"
    figure, grid = sheet(3, title, 3.2)
    for axes, (name, (label, factor, unit)) in zip(grid, LATENCIES.items(), strict=True):
        pairs = {
            kind: requests.loc[requests["saturated"] == (kind == "saturated")].dropna(
                subset=[f"measured_{name}"]
            )
            for kind in ("below saturation", "saturated")
        }
        points = {
            kind: factor * here[[f"measured_{name}", f"predicted_{name}"]].to_numpy(float)
            for kind, here in pairs.items()
        }
        sums = [row.latencies[name] for row in report.rows if row.kind == "in sum"]
        told = [(e.measured["mean"], e.predicted["mean"]) for e in sums if e.measured["mean"] is not None]
        points["in sum"] = factor * np.array(told, float).reshape(-1, 2)
        _panel(axes, points, label, unit)
    legend(figure, ncols=3, markerscale=1.6)
    return Picture("truth", title, figure, _caption(report))


def _panel(axes: Axes, points: dict[str, np.ndarray], label: str, unit: str) -> None:
    axes.set_title(label)
    drawn = np.concatenate(list(points.values()))
    drawn = drawn[drawn > 0]
    if not len(drawn):
        axes.set_axis_off()
        axes.text(0.5, 0.5, "not measured", ha="center", color=MUTED)
        return
    for kind, pairs in points.items():
        if len(pairs):
            colour, marker = LOOKS[kind]
            size = 5.0 if marker == "x" else 2.6
            axes.plot(
                *pairs.T,
                marker,
                ms=size,
                mew=1.2 if marker == "x" else 0,
                alpha=0.6,
                color=colour,
                ls="",
                label=kind,
                rasterized=True,
            )
    low, high = 0.8 * float(drawn.min()), 1.25 * float(drawn.max())
    identity(axes, low, high, BAND)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    axes.set(xlabel=f"measured, {unit}", ylabel=f"predicted, {unit}")
    for axis in (axes.xaxis, axes.yaxis):
        plain_log(axis)


def _caption(report: Report) -> str:
    said = []
    for total in (each for each in report.totals if each.of is None or each.kind == "in sum"):
        errors = ", ".join(
            f"{name.upper()} {100 * value:.1f} %"
            for name, value in total.absolute.items()
            if value is not None
        )
        which = "nothing calibrated on it" if total.held_out else "calibrated"
        said.append(f"{total.of or total.kind}, {which}: {errors}")
    return f"Both axes are logarithmic; the band is ± {100 * BAND:.0f} %. Mean absolute errors: {'; '.join(said)}."
