"""fidelity.html: how far the fitted generators are from the real data, column by column."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reports.figures.drawing import plain_log, sheet
from reports.figures.picture import Picture
from reports.figures.style import style
from reports.traces.numbers import short
from reports.traces.page import write_page
from reports.traces.trace_figures import LAW, OURS, probabilities

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from workloads.statistics.generator_fit import Comparison

GOOD, FAIR = 0.05, 0.10
"""Choice: a Kolmogorov–Smirnov distance up to the first is good, up to the second fair, above it poor."""
LOG_RANGE = 20.0
"""Ratio of P99 to P1 above which a column is drawn on logarithmic axes."""


def write_fidelity_page(comparisons: Sequence[Comparison], folder: Path) -> Path:
    """Write fidelity.html and a picture per workload into `folder`; the path of the page."""
    names = dict.fromkeys(one.workload for one in comparisons)
    with style():
        pictures = [_draw(name, [one for one in comparisons if one.workload == name]) for name in names]
    return write_page(
        folder,
        "fidelity",
        pictures,
        title="Fitted generators compared with real data",
        rows=[row(one) for one in comparisons],
        good=GOOD,
        fair=FAIR,
    )


def row(one: Comparison) -> dict[str, Any]:
    """Return a line of the table: sizes, medians and P99 of both, the distance and its meaning."""
    numbers = {
        f"{name}_{who}": short(float(np.percentile(values, q)))
        for who, values in (("real", one.real), ("ours", one.ours))
        for name, q in (("p50", 50), ("p99", 99))
    }
    return {
        "workload": one.workload,
        "source": one.source,
        "column": one.column + ("" if one.unit in one.column else f", {one.unit}"),
        "n": f"{len(one.real):,}",
        **numbers,
        "ks": f"{one.ks:.3f}",
        "verdict": verdict(one.ks),
        "chance": f"{chance(one):.3f}",
        "note": one.note,
    }


def verdict(ks: float) -> str:
    return "good" if ks <= GOOD else "fair" if ks <= FAIR else "poor"


def chance(one: Comparison) -> float:
    """The distance that two such samples from one law exceed once in twenty (two-sample KS, asymptotic)."""
    n, m = len(one.real), len(one.ours)
    return 1.358 * float(np.sqrt((n + m) / (n * m)))


def _draw(workload: str, comparisons: Sequence[Comparison]) -> Picture:
    title = f"{workload}: quantiles, real and ours"
    figure, panels = sheet(len(comparisons), title, 2.9, 3)
    for one, panel in zip(comparisons, panels, strict=True):
        _quantiles(panel, one)
    for panel in panels[::3]:
        panel.set_ylabel("quantile of ours")
    name = "fidelity_" + re.sub(r"[^a-z0-9]+", "_", workload.lower()).strip("_")
    sources = ", ".join(dict.fromkeys(one.source for one in comparisons))
    caption = (
        f"Quantiles of our generator over those of the real data ({sources}); equal distributions lie on "
        "the dashed line, above it ours is longer. Rings: P50, P90 and P99."
    )
    return Picture(name, title, figure, caption)


def _quantiles(panel: Axes, one: Comparison) -> None:
    n = min(len(one.real), len(one.ours))
    p = probabilities(n)
    real, ours = (np.quantile(values, p, method="inverted_cdf") for values in (one.real, one.ours))
    low, high = np.percentile(np.concatenate([one.real, one.ours]), (1, 99))
    logarithmic_axes = low > 0 and high / low > LOG_RANGE
    if logarithmic_axes:
        seen = (real > 0) & (ours > 0)
        real, ours = real[seen], ours[seen]
        panel.set(xscale="log", yscale="log")
    panel.plot(real, ours, "o", ms=3, mew=0, color=OURS)
    marks = (0.5, 0.9, 0.99)
    panel.plot(np.quantile(one.real, marks), np.quantile(one.ours, marks), "o", ms=7, mfc="none", mec=OURS)
    ends = [min(real.min(), ours.min()), max(real.max(), ours.max())]
    panel.plot(ends, ends, color=LAW, lw=0.9, ls=(0, (4, 3)))
    if logarithmic_axes:
        plain_log(panel.xaxis)
        plain_log(panel.yaxis)
    panel.set_title(f"{one.column}: KS {one.ks:.3f}, {verdict(one.ks)}", fontsize=9)
    panel.set_xlabel(f"quantile of {one.source}{f', {one.unit}' if one.unit else ''}")
