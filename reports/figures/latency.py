"""How long users waited: the distribution of the time to first audio, one panel a load.

The share is over all started turns, so a curve that ends below 100 % had turns that were never answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reports.figures.picture import LeftOut, Picture, at, made_from, paper_handle, paper_marker, setting
from reports.measured import Measured, Run
from reports.paper import Published, matching
from reports.style import INK, looks, panels

NAME = "latency_distribution"
_LOADS = 3
"""Panels: the smallest load, the largest, and what lies between as room permits."""


def draw(run: Run, paper: Sequence[Published] = ()) -> Picture | LeftOut:
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter, NullFormatter

    what = "time to first audio (TTFP)" if run.spoken else "time to first text token (TTFT)"
    title = f"Distribution of the {what}"
    look = looks(run.variants)
    loads = run.values("c")
    loads = loads[:1] + loads[1:][-(_LOADS - 1) :] if loads else [None]
    p = next(iter(run.values("p")), None)
    chosen = {load: at(run, (), c=load, p=p) for load in loads}
    if not any(_waits(run, run.at(variant, **chosen[load]))[0].size for variant in look for load in loads):
        return LeftOut(NAME, title, "no turn of these points was answered")
    figure, axes = panels(len(loads), f"{title}, {_where(chosen)}", 3.1, sharex=True, sharey=True)
    used: list[Measured] = []
    marked = False
    for load, panel in zip(loads, axes, strict=True):
        counts = []
        for variant, own in look.items():
            points = run.at(variant, **chosen[load])
            used += points
            waits, started = _waits(run, points)
            counts.append(f"{started:,}")
            if not waits.size:
                continue
            share = np.arange(1, waits.size + 1) / started
            panel.step(waits, share, where="post", color=own.colour, ls=own.line)
            p90 = float(np.percentile(waits, 90))
            height = 0.9 * waits.size / started
            panel.plot(p90, height, own.marker, color=own.colour, mec="white", zorder=5)
            for entry in _published(paper, chosen[load], variant.engine) if run.spoken else []:
                paper_marker(panel, entry[0], entry[1], own)
                marked = True
        same = len(set(counts)) == 1
        name = f"c = {load}, " if load is not None else ""
        panel.set_title(f"{name}n = {counts[0] if same else ' / '.join(counts)} turns")
        panel.axhline(0.9, color=INK, lw=0.7, ls=(0, (2, 3)), zorder=1)
        panel.set_xlabel(f"{'TTFP' if run.spoken else 'TTFT'}, ms (log scale)")
    axes[0].set_xscale("log")
    axes[0].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes[0].xaxis.set_minor_formatter(NullFormatter())
    axes[0].set_ylim(0, 1.02)
    axes[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    axes[0].set_ylabel("share of turns")
    _ticks(axes)
    handles = [
        Line2D([], [], color=own.colour, ls=own.line, marker=own.marker, mec="white", label=variant.label)
        for variant, own in look.items()
    ]
    figure.legend(
        handles=[*handles, *([paper_handle("paper: P50, P90, P95 (other deployment)")] if marked else [])],
        loc="outside lower left",
        ncols=4,
    )
    caption = (
        "Further left is better. A curve gives the share of turns answered within the time on the horizontal "
        "axis, counted from the scheduled end of the user's turn; the filled marker is P90. Turns are pooled "
        "over seeds; turns that failed stay in the count. " + made_from(used)
    )
    return Picture(NAME, title, figure, caption)


def _where(chosen: dict[Any, dict[str, Any]]) -> str:
    fixed = {name: value for name, value in next(iter(chosen.values())).items() if name != "c"}
    return setting(fixed) or "all turns"


def _waits(run: Run, points: Sequence[Measured]) -> tuple[np.ndarray, int]:
    """Times to the first output in ms, ascending, and the number of turns that should have had one."""
    column = "audio_ttfp_s" if run.spoken else "ttft_s"
    tables = [point.requests for point in points if point.error is None]
    waits = [table.loc[table["spoken"] | (not run.spoken), column] for table in tables]
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


def _ticks(axes: Sequence) -> None:
    """Round numbers on a log axis that spans little more than a decade."""
    low, high = axes[0].get_xlim()
    steps = (1, 2, 5, 10, 20, 50, 100, 200, 300, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5)
    axes[0].set_xticks([tick for tick in steps if low <= tick <= high])
    axes[0].set_xlim(low, high)
