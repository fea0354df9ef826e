"""Distribution of the time to first audio, one panel for each load.

The share is over all started turns, so a curve that ends below 100 % had turns that were never answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reports.claims.published import Published, matching
from reports.figures.forms import Plot, distribution, figure
from reports.figures.picture import LeftOut, Picture, at, labelled
from reports.runs.measured import Measured, Run
from reports.tables.labels import setting

NAME = "latency_distribution"
_LOADS = 3
"""Number of panels: the smallest load, the largest, and loads between as room permits."""


def draw(run: Run, paper: Sequence[Published] = ()) -> Picture | LeftOut:
    what = "time to first audio (TTFP)" if run.spoken else "time to first text token (TTFT)"
    loads = run.values("c")
    loads = loads[:1] + loads[1:][-(_LOADS - 1) :] if loads else [None]
    p = next(iter(run.interruptions), None)
    chosen = {load: at(run, (), c=load, p=p) for load in loads}
    fixed = {name: value for name, value in chosen[loads[0]].items() if name != "c"}
    plots = [_plot(run, paper, load, where) for load, where in chosen.items()]
    return figure(
        f"Distribution of the {what}, {setting(fixed) or 'all turns'}",
        *plots,
        name=NAME,
        paper="paper: P50, P90, P95 (other deployment)",
        caption="Further left is better. A curve gives the share of turns answered within the time on the horizontal "
        "axis, counted from the scheduled end of the user's turn; the dotted line is at 90 %. Turns are pooled over "
        "seeds; turns that failed stay in the count.",
        sharex=True,
        sharey=True,
    )({})


def _plot(run: Run, paper: Sequence[Published], load: Any, where: Mapping[str, Any]) -> Plot:
    def waits(point: Measured) -> np.ndarray:
        """Times to the first output in s of the turns that should have had one."""
        table = point.requests.loc[point.requests["spoken"]] if run.spoken else point.requests
        return table["audio_ttfp_s" if run.spoken else "ttft_s"].to_numpy(float)

    series = {variant.label: run.at(variant, **where) for variant in run.variants}
    n = [sum(waits(p).size for p in points if p.error is None) for points in series.values()]
    n_text = " / ".join(f"{count:,}" for count in (n if len(set(n)) > 1 else n[:1]))
    marks = {variant.label: _published(paper, where, variant.engine) for variant in run.variants if run.leads(variant)}
    return distribution(
        waits,
        series,
        style=labelled(run),
        marks=marks,
        across={0.9: ""},
        title=", ".join(filter(None, [setting({"c": load}), f"n = {n_text} turns"])),
        xscale="log",
        xlim=(None, None),
        xlabel=f"{'TTFP' if run.spoken else 'TTFT'}, ms (log scale)",
    )


def _published(paper: Sequence[Published], chosen: Mapping[str, Any], engine: str) -> dict[float, float]:
    """The paper's times in s by percentile for this panel."""
    here = {name: chosen[name] for name in ("c", "p") if name in chosen}
    return {
        percentile: entry.values[engine]
        for percentile in (50, 90, 95)
        for entry in matching(paper, f"audio_ttfp_p{percentile}", here)
        if engine in entry.values
    }
