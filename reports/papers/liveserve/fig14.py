"""Fig. 14: LiveServe's parts switched on one by one, on interactive sessions, without and with barge-in."""

from typing import Any

from reports.claims.claim import Claim
from reports.claims.quantities import change, of
from reports.claims.stated import claim, moves
from reports.figures.forms import bars, figure
from reports.figures.style import engine_looks
from reports.papers.liveserve.common import (
    AWAITED,
    CURRENT_TURN,
    FEW_IN_FLIGHT,
    HELD,
    INTERACTIVE,
    RPS,
    SHORTER,
    SPOKEN_P90,
    experiment,
    spoken_rps,
)

TITLE = "Fig. 14: scheduling, preload and eviction, added one by one (interactive, c = 8)"

STEPS: dict[str, tuple[str, dict[str, Any]]] = {
    "vllm_omni (offload, LRU)": ("vllm_omni", {}),
    "+ scheduling": ("liveserve", {"preload": False, "eviction": "off"}),
    "+ preload": ("liveserve", {"eviction": "off", **CURRENT_TURN}),
    "+ eviction": ("liveserve", CURRENT_TURN),
}
"""Real switches of one engine; preload with the prefill of the current turn. Preload without the eviction index
protects nothing from LRU once it has arrived."""

PS = [0.0, 0.5]

EXPERIMENTS = {
    step: experiment("fig14", [engine], "interactive", {**INTERACTIVE, "c": 8, **switches}, timeout_s=900, p=PS)
    for step, (engine, switches) in STEPS.items()
}
QUICK = {"stop_after_s": "120"}

BASE, FULL = "vllm_omni (offload, LRU)", "+ eviction"


def _claims(p: float, ttfp: float, rps: float, remark: str = "") -> dict[str, Claim]:
    full, base = of(FULL, p=p), of(BASE, p=p)
    fact = f"Section 7.3, Fig. 14: P90 TTFP and RPS of the whole system, p = {p:g}"
    return {
        f"fig14-p90-p{p:g}": claim(
            f"the whole system lowers P90 TTFP, p = {p:g}",
            moves(ttfp, within=SPOKEN_P90),
            change("audio_ttfp_p90", full, since=base),
            FEW_IN_FLIGHT,
            fact=fact,
            chosen=AWAITED,
            remark=remark,
        ),
        f"fig14-rps-p{p:g}": claim(
            f"the whole system completes more requests, p = {p:g}",
            moves(rps, within=RPS),
            change(spoken_rps, full, since=base),
            HELD if p else SHORTER,
            fact=fact,
        ),
    }


CLAIMS = {
    **_claims(0.0, -0.298, 0.088),
    **_claims(0.5, -0.398, 0.285, "the paper quotes the same pair (28.5 %, 39.8 %) for Fig. 10 without barge-in"),
    "fig14-kv-p0": claim(
        "(ours) preload, with the prefill of the current turn, and eviction add to scheduling: P90 TTFP since "
        "scheduling alone, p = 0",
        moves((-0.5, -0.02), words="not given"),
        change("audio_ttfp_p90", of(FULL, p=0.0), since=of("+ scheduling", p=0.0)),
        "what preload hides of these turns, a reload of 33 ms, is less than seeds differ by",
        remark="the paper calls its staged improvements complementary and prints no number for a stage",
    ),
}

_LOOKS = dict(zip(STEPS, engine_looks("vllm_omni", "+", "++", "liveserve").values(), strict=True))
_SERIES = {step: {f"p = {p:g}": of(step, p=p) for p in PS} for step in STEPS}
draw = figure(
    TITLE,
    bars("audio_ttfp_p90", _SERIES, style=_LOOKS),
    bars(spoken_rps, _SERIES, style=_LOOKS, ylabel="completed requests, 1/s"),
    caption="Each bar adds one part to the one before. Sessions begin with 16,000 tokens of context that were served "
    "once, pressure ratio 2.0: the context of a turn may be on the GPU, on the host, or in transfer.",
)
