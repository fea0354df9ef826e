"""Fig. 7: Llama-3.1-70B serving BurstGPT chats with mixed documents as batch jobs, over time; the points are Table
2's."""

from typing import Any

import numpy as np

from reports.claims.quantities import Measure, Panels, minus, quotient, value
from reports.claims.stated import claim, level
from reports.figures.drawing import plain_log
from reports.figures.forms import picture
from reports.figures.frames import finished
from reports.papers.conserve.figures import STYLE, SYSTEMS, run_notes
from reports.papers.conserve.loads import BOTH, LLAMA_70B, SLO, TARGET, alone, at, both, prefill_apart
from reports.papers.conserve.measures import ATTAINED, BY_GUARD, BY_TARGET, kept, online_requests
from reports.papers.conserve.systems import DISTSERVE, NAMES, NON_PREEMPTIVE, ONLINE_ONLY, OURS, SARATHI
from reports.runs.measured import Measured

TITLE = "Fig. 7: Llama-3.1-70B on four H100, BurstGPT chats online and mixed documents as batch jobs, over time"

_LIMITS = SLO["70b chat"]
_NO_SLACK = "mixed, s = 1"
EXPERIMENTS = {
    "mixed: online alone": alone("70b", **LLAMA_70B),
    "mixed: with batch": both("70b mixed", _LIMITS, shape="mixed", **LLAMA_70B),
    "mixed: prefill apart": prefill_apart("70b mixed", shape="mixed", **LLAMA_70B),
    f"{_NO_SLACK}: {BOTH}": both(_NO_SLACK, _LIMITS, 1.0, [OURS], shape="mixed", **LLAMA_70B),
}
QUICK = {"requests": "40"}

_WINDOW_S = 10.0
"""[chosen] of the tokens computed."""


def _kept(which: str, engine: str, scale: float = TARGET) -> Measure:
    name = _NO_SLACK if engine == OURS and scale == 1.0 else "mixed"
    return value(kept(which, _LIMITS, scale), at(name, engine))


_FILLED = {
    "ttft": "",
    "tbt": ": steps are filled up to t_TBT, and one in eight lasts longer than the five terms predict",
}
_CONSISTENT = "Sec. 6.3, Fig. 7: only Online-Only and ConServe consistently meet SLOs"
_FREQUENT = "Sec. 6.3, Fig. 7: the other systems violate SLOs frequently"
CLAIMS = {
    f"fig7-{which}-{scale:g}": claim(
        f"ConServe keeps {which.upper()} as consistently as Online-Only, s = {scale:g} (share within, ratio)",
        level(1.0, "×", within=0.02, words="as consistently"),
        quotient(_kept(which, OURS, scale), _kept(which, ONLINE_ONLY, scale)),
        "× {ours:.2f}" + _FILLED[which],
        fact=_CONSISTENT,
        chosen=BY_TARGET if scale == TARGET else BY_GUARD,
    )
    for scale in (1.0, TARGET)
    for which in ATTAINED
} | {
    f"fig7-{which}-{engine.replace('_', '-')}": claim(
        f"{NAMES[engine]} often misses {which.upper()}, s = {TARGET:g} (share missed, Online-Only's taken off)",
        level((0.05, 1.0), "%", neutral=0, words="frequent violations"),  # frequent: five in a hundred [chosen]
        minus(_kept(which, ONLINE_ONLY), _kept(which, engine)),
        "{percent:.1f} points" + (why if which == "tbt" else ""),
        fact=_FREQUENT,
    )
    for engine, why in ((SARATHI, ""), (NON_PREEMPTIVE, ""), (DISTSERVE, ": no decode waits for a prompt"))
    for which in ATTAINED
}


def _first(panels: Panels) -> dict[str, Measured]:
    """The first finished run of each engine that has one."""
    by_engine = {engine: finished(at("mixed", engine).points(panels)) for engine in SYSTEMS}
    return {engine: points[0] for engine, points in by_engine.items() if points}


@picture(TITLE, 3, columns=1, points=lambda panels: _first(panels).values())
def draw(panels: Panels, *axes: Any) -> str:
    """The first seed: TTFT and P99 time between tokens of each online request, and all tokens computed."""
    first = _first(panels)
    for engine, point in first.items():
        name, look, online = NAMES[engine], STYLE[NAMES[engine]], online_requests(point)
        dots = {"ls": "none", "marker": look.marker, "color": look.colour, "ms": 3, "label": name}
        for ax, column, factor in ((axes[0], "ttft_s", 1), (axes[1], "tbt_p99_s", 1000)):
            ax.plot(online["turn_start_s"], factor * online[column], **dots)
        steps = point.record.table("steps")
        counts = np.bincount((steps["t_s"] // _WINDOW_S).astype(int), weights=steps["tokens"])[:-1]
        middle_s = _WINDOW_S * (np.arange(len(counts)) + 0.5)
        axes[2].plot(middle_s, counts / _WINDOW_S / 1000, **look.stroke, label=name)
    for ax, limit in ((axes[0], _LIMITS[0]), (axes[1], 1000 * _LIMITS[1])):
        ax.axhline(TARGET * limit, color="tab:red", lw=1)
        ax.set_yscale("log")
        plain_log(ax.yaxis)
    labels = ("TTFT, s", "P99 time between tokens, ms", "tokens computed, 1000/s")
    for ax, text in zip(axes, labels, strict=True):
        ax.set(ylabel=text, xlabel="time, s")
    axes[2].set_ylim(bottom=0)
    return (
        "Red: ConServe's targets. Our runs last three minutes, the paper's ten; tokens of both "
        f"classes, including recomputed ones; DistServe-P has eight GPUs. {run_notes(list(first.values()))}"
    )
