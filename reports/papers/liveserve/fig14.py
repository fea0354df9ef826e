"""Fig. 14: LiveServe's parts switched on one by one, on interactive sessions, without and with barge-in."""

from collections.abc import Mapping
from typing import Any

from reports.claims import Claim, change, of
from reports.figures.drawing import bars, legend, sheet
from reports.figures.picture import LeftOut, Picture, made_from
from reports.measured import Measured, Run, Variant
from reports.papers.liveserve.common import INTERACTIVE, experiment, returning, spread
from reports.stated import claim, moves
from reports.style import looks

TITLE = "Fig. 14: scheduling, preload and eviction, added one by one (interactive, pressure ratio 2.0)"

STEPS: dict[str, tuple[str, dict[str, Any]]] = {
    "vllm_omni (offload, LRU)": ("vllm_omni", {}),
    "+ scheduling": ("liveserve", {"preload": False, "eviction": "off"}),
    "+ preload": ("liveserve", {"eviction": "off"}),
    "+ eviction": ("liveserve", {}),
}
"""Real switches of one engine. Preload without the eviction index protects nothing from LRU once it has arrived."""

PS = [0.0, 0.5]

EXPERIMENTS = {
    step: experiment(
        "fig14", [engine], "interactive", {**INTERACTIVE, "c": 16, **switches}, timeout_s=900, p=PS
    )
    for step, (engine, switches) in STEPS.items()
}
QUICK = {"sessions": "16", "kv_pool_blocks": "2048"}

PAPER: dict[str, Any] = {}

BASE, FULL = "vllm_omni (offload, LRU)", "+ eviction"
_FIRST = (
    "first turns bring 16,000 tokens of context that every system prefills, and they set the P90 of all turns"
)
_LISTENED = "completed requests follow from how long people listen"


def _claims(p: float, ttfp: float, rps: float, remark: str = "") -> list[Claim]:
    full, base = of(FULL, "liveserve", p=p), of(BASE, "vllm_omni", p=p)
    return [
        claim(
            f"fig14-p90-p{p:g}",
            f"the whole system lowers P90 TTFP, p = {p:g}",
            moves(ttfp, within=0.08),
            change("audio_ttfp_p90", full, since=base),
            _FIRST,
            remark=remark,
        ),
        claim(
            f"fig14-returning-p{p:g}",
            f"the same for returning turns alone, whose KV is in memory or was evicted, p = {p:g}",
            moves(ttfp, within=0.08),
            change(returning("audio_ttfp_s", 90), full, since=base),
            "here {percent:.0f} %: a reload of 1.6 GB takes 33 ms of a TTFP of about 0.4 s, of which 25 frames of "
            "the first packet are most",
            remark="the paper does not tell first and later turns apart",
        ),
        claim(
            f"fig14-rps-p{p:g}",
            f"the whole system completes more requests, p = {p:g}",
            moves(rps, within=0.04),
            change("completed_rps", full, since=base),
            _LISTENED,
        ),
    ]


CLAIMS = [
    *_claims(0.0, -0.298, 0.088),
    *_claims(
        0.5, -0.398, 0.285, "the paper quotes the same pair (28.5 %, 39.8 %) for Fig. 10 without barge-in"
    ),
]


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """P90 TTFP of all and of returning turns, and completed requests, for each step and p."""
    figure, axes = sheet(1, 3, TITLE)
    step_looks = dict(zip(STEPS, looks([Variant("vllm_omni"), *_variants()]).values(), strict=True))
    shown = {
        "P90 TTFP, all turns, s": "audio_ttfp_p90",
        "P90 TTFP, returning turns, s": returning("audio_ttfp_s", 90),
        "completed requests, 1/s": "completed_rps",
    }
    points: list[Measured] = [point for run in panels.values() for point in run.points]
    if not any(point.error is None for point in points):
        return LeftOut("fig14", TITLE, "no point of it is finished")
    for own, (label, quantity) in zip(axes, shown.items(), strict=True):
        series = {}
        for step, (engine, _) in STEPS.items():
            at = [of(step, engine, p=p).points(panels) for p in PS]
            series[step] = ([spread(found, quantity) for found in at], step_looks[step])
        bars(own, [f"p = {p:g}" for p in PS], series)
        own.set_ylabel(label)
    legend(figure, axes[0])
    caption = (
        "Each bar adds one part to the one before. Returning turns are all but a session's first: their context may be "
        f"on the GPU, on the host, or on its way. {made_from(points, bars=True)}"
    )
    return Picture("fig14", TITLE, figure, caption)


def _variants() -> list[Variant]:
    return [Variant(engine, tuple(switches.items())) for engine, switches in list(STEPS.values())[1:]]
