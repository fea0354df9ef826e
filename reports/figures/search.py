"""A search in virtual time: what was measured at each value, the targets, and the largest value that meets them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from harness.slo.targets import scale
from reports.claims.published import Published
from reports.figures.drawing import joining, sheet
from reports.figures.picture import LeftOut, Picture
from reports.figures.style import Look, looks
from reports.figures.targets import target_panel
from reports.live.find import Finding, load_finding
from reports.runs.measured import Run, Variant
from reports.tables.labels import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "search"


def draw(run: Run, paper: Sequence[Published] = ()) -> Picture | LeftOut:
    finding = load_finding(run)
    if finding is None:
        return LeftOut(NAME, "What it holds", "no search was made (rehearse find)")
    title = f"The largest {finding.over} that meets every target"
    variants = [Variant(one.engine, tuple(one.settings.items())) for one in finding.searched]
    look = looks(variants)
    figure, axes = sheet(1, len(finding.targets), title, 3.4, sharex=True)
    for index, panel in enumerate(axes):
        _panel(panel, finding, index, [look[variant] for variant in variants])
    labels = []
    for one, variant in zip(finding.searched, variants, strict=True):
        holds = finding.search(one).holds
        labels.append(f"{variant.label}: {'none' if holds is None else f'{holds:g}'}")
    figure.legend(
        handles=[_handle(look[variant], label) for variant, label in zip(variants, labels, strict=True)],
        loc="outside lower left",
        ncols=2,
    )
    tried = sum(len(one.tried) for one in finding.searched)
    caption = (
        f"A marker is one seed at one {finding.over}, a line joins the medians of those that were tried on every seed; "
        "an arrow is a percentile that failed turns make infinite. The shaded side misses the target. Dotted, and in "
        f"the legend: the largest {finding.over} at which every seed meets every target. "
        f"Made from {counted(tried, 'point')}."
    )
    return Picture(NAME, title, figure, caption)


def _panel(panel: Axes, finding: Finding, index: int, look: Sequence[Look]) -> None:
    from matplotlib.ticker import MaxNLocator

    target = finding.targets[index]
    factor, _ = scale(target.metric)
    known = [
        (own, one, [(t.value, v) for t in one.tried if (v := t.repeat.values[index]) is not None])
        for own, one in zip(look, finding.searched, strict=True)
    ]
    arrow = target_panel(panel, target, [v for _, _, found in known for _, v in found])
    for own, one, found in known:
        for value, v in found:
            shown, marker = (factor * v, own.marker) if math.isfinite(v) else (arrow, "^")
            panel.plot(
                value, shown, marker, ms=4.5, mec="white", mew=0.6, color=own.colour, alpha=0.8, zorder=4
            )
        medians = {
            value: float(np.median([v for at, v in found if at == value]))
            for value in sorted(finding.search(one).together)
            if any(at == value for at, _ in found)
        }
        line = {value: factor * v for value, v in medians.items() if math.isfinite(v)}
        panel.plot(
            list(line), list(line.values()),
            **{"color": own.colour, "ls": own.line, "lw": 1.4, "alpha": 0.7, "zorder": 3} | joining(len(line)),
        )  # fmt: skip
        if (holds := finding.search(one).holds) is not None:
            panel.axvline(holds, color=own.colour, lw=1.3, ls=(0, (1, 2)), zorder=1)
    panel.set_xlim(left=0)
    panel.xaxis.set_major_locator(MaxNLocator(8, integer=finding.bounds.whole))
    panel.set_xlabel(finding.over)


def _handle(look: Look, label: str):
    from matplotlib.lines import Line2D

    return Line2D(
        [], [], color=look.colour, ls=look.line, lw=1.4, marker=look.marker, mec="white", label=label
    )
