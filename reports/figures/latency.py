"""How long users waited: the distribution of the time to first audio, one panel a load.

The share is over all started turns, so a curve that ends below 100 % had turns that were never answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from reports.claims.published import Published, matching
from reports.figures.picture import LeftOut, Picture, at, made_from, paper_handle, paper_marker
from reports.figures.style import INK, Look, looks, panels
from reports.runs.measured import Measured, Run, Variant
from reports.tables.labels import setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "latency_distribution"
_LOADS = 3
"""Panels: the smallest load, the largest, and what lies between as room permits."""


def draw(run: Run, paper: Sequence[Published] = ()) -> Picture | LeftOut:
    what = "time to first audio (TTFP)" if run.spoken else "time to first text token (TTFT)"
    title = f"Distribution of the {what}"
    loads = run.values("c")
    loads = loads[:1] + loads[1:][-(_LOADS - 1) :] if loads else [None]
    p = next(iter(run.interruptions), None)
    chosen = {load: at(run, (), c=load, p=p) for load in loads}
    used = [
        point for where in chosen.values() for variant in run.variants for point in run.at(variant, **where)
    ]
    if not _waits(run, used)[0].size:
        return LeftOut(NAME, title, "no turn of these points was answered")
    look = looks(run.variants)
    figure, axes = panels(len(loads), f"{title}, {_where(chosen)}", 3.1)
    axes[0].set_xscale("log")
    marks: list[tuple[Axes, float, float, Look]] = []
    for (load, where), panel in zip(chosen.items(), axes, strict=True):
        n = [_curve(panel, run, run.at(variant, **where), own) for variant, own in look.items()]
        for variant in filter(run.leads, look):
            published = _published(paper, where, variant.engine)
            marks += [(panel, wait_ms, share, look[variant]) for wait_ms, share in published]
        n_text = " / ".join(f"{count:,}" for count in (n if len(set(n)) > 1 else n[:1]))
        panel.set_title(", ".join(filter(None, [setting({"c": load}), f"n = {n_text} turns"])))
        panel.axhline(0.9, color=INK, lw=0.7, ls=(0, (2, 3)), zorder=1)
        panel.set_xlabel(f"{'TTFP' if run.spoken else 'TTFT'}, ms (log scale)")
    axes[0].set_ylabel("share of turns")
    low, high = axes[0].get_xlim()  # of ours: another deployment's numbers do not stretch it
    for panel, wait_ms, share, own in marks:
        paper_marker(panel, wait_ms, share, own)
    axes[0].set_xlim(low, high)
    _scales(axes[0])
    outside = sum(not low <= wait_ms <= high for _, wait_ms, _, _ in marks)
    figure.legend(handles=_legend(look, len(marks), outside), loc="outside lower left", ncols=4)
    caption = (
        "Further left is better. A curve gives the share of turns answered within the time on the horizontal "
        "axis, counted from the scheduled end of the user's turn; the filled marker is P90. Turns are pooled "
        "over seeds; turns that failed stay in the count. " + made_from(used)
    )
    return Picture(NAME, title, figure, caption)


def _curve(panel: Axes, run: Run, points: Sequence[Measured], own: Look) -> int:
    """Draw one variant; returns the number of turns behind it."""
    waits, started = _waits(run, points)
    if waits.size:
        share = np.arange(1, waits.size + 1) / started
        panel.step(waits, share, where="post", **own.stroke)
        height = 0.9 * waits.size / started
        panel.plot(np.percentile(waits, 90), height, own.marker, color=own.colour, mec="white", zorder=5)
    return started


def _where(chosen: dict[Any, dict[str, Any]]) -> str:
    fixed = {name: value for name, value in next(iter(chosen.values())).items() if name != "c"}
    return setting(fixed) or "all turns"


def _waits(run: Run, points: Sequence[Measured]) -> tuple[np.ndarray, int]:
    """Times to the first output in ms, ascending, and the number of turns that should have had one."""
    column = "audio_ttfp_s" if run.spoken else "ttft_s"
    tables = [point.requests for point in points if point.error is None]
    waits = [table.loc[table["spoken"], column] if run.spoken else table[column] for table in tables]
    joined = np.concatenate(waits) if waits else np.empty(0)
    return 1000 * np.sort(joined[~np.isnan(joined)]), joined.size


def _published(paper: Sequence[Published], chosen: dict[str, Any], engine: str) -> list[tuple[float, float]]:
    """The paper's percentiles for this panel: (time in ms, share)."""
    here = {name: chosen[name] for name in ("c", "p") if name in chosen}
    return [
        (1000 * entry.values[engine], percentile / 100)
        for percentile in (50, 90, 95)
        for entry in matching(paper, f"audio_ttfp_p{percentile}", here)
        if engine in entry.values
    ]


def _scales(axes: Axes) -> None:
    """Shares in per cent over a log axis with round numbers: 1, 2, 5 over decades, even steps within one."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator, PercentFormatter

    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    low, high = axes.get_xlim()
    locator = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]) if high < 4 * low else LogLocator(subs=(1, 2, 5))
    axes.set_xticks([tick for tick in locator.tick_values(low, high) if low <= tick <= high])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlim(low, high)


def _legend(look: Mapping[Variant, Look], marks: int, outside: int) -> list[Any]:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **own.joined, label=variant.label) for variant, own in look.items()]
    if marks == outside:
        return handles
    where = f"other deployment{f'; {outside} of {marks} lie outside' if outside else ''}"
    return [*handles, paper_handle(f"paper: P50, P90, P95 ({where})")]
