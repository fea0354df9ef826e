"""Fig. 14: LiveServe's parts switched on one by one, on interactive sessions, without and with barge-in."""

from typing import Any

from reports.claims.claim import Claim
from reports.claims.quantities import Quantity, Setting, change, of
from reports.claims.stated import claim, moves
from reports.figures.forms import bars, figure
from reports.figures.style import engine_looks
from reports.papers.liveserve.common import (
    AWAITED,
    CURRENT_TURN,
    INTERACTIVE,
    RPS,
    SHORTER,
    SPOKEN_P90,
    experiment,
    returning,
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

SPOKEN, CONTEXT = "what was said", "16,000 tokens of context besides"
CONTEXTS: dict[str, dict[str, Any]] = {
    SPOKEN: {"opening_tokens": 0, "kv_pool_blocks": 480},
    CONTEXT: {"p": 0.0},
}
"""Contexts of the sessions: about 20 blocks at their end, or 1,020, each twice the pool for 48 of them. The second is
for the KV of returning turns alone. First turns have to prefill it under every system, and set the P90 of all."""


def _panel(context: str, step: str) -> str:
    return f"{step}; {context}"


EXPERIMENTS = {
    _panel(context, step): experiment(
        "fig14",
        [engine],
        "interactive",
        {**INTERACTIVE, **has, "c": 8, **switches},
        timeout_s=900,
        **({} if "p" in has else dict[str, Any](p=PS)),
    )
    for context, has in CONTEXTS.items()
    for step, (engine, switches) in STEPS.items()
}
QUICK = {"sessions": "16", "kv_pool_blocks": "8192"}

BASE, FULL = "vllm_omni (offload, LRU)", "+ eviction"


def _at(step: str, **params: Any) -> Setting:
    return of(_panel(SPOKEN if params else CONTEXT, step), **params)


def _claims(p: float, ttfp: float, rps: float, remark: str = "") -> dict[str, Claim]:
    full, base = _at(FULL, p=p), _at(BASE, p=p)
    fact = f"Section 7.3, Fig. 14: P90 TTFP and RPS of the whole system, p = {p:g}"
    return {
        f"fig14-p90-p{p:g}": claim(
            f"the whole system lowers P90 TTFP, p = {p:g}",
            moves(ttfp, within=SPOKEN_P90),
            change("audio_ttfp_p90", full, since=base),
            "scheduling alone gains here: the conversation takes 2 ms to copy, so "
            "preload and eviction add nothing; and most of the eight callers listen, speak or think, "
            "so first packets compete with few others",
            fact=fact,
            chosen=AWAITED,
            remark=remark,
        ),
        f"fig14-rps-p{p:g}": claim(
            f"the whole system completes more requests, p = {p:g}",
            moves(rps, within=RPS),
            change("completed_rps", full, since=base),
            SHORTER,
            fact=fact,
        ),
    }


CLAIMS = {
    **_claims(0.0, -0.298, 0.088),
    **_claims(
        0.5, -0.398, 0.285, "the paper quotes the same pair (28.5 %, 39.8 %) for Fig. 10 without barge-in"
    ),
    "fig14-returning-p0": claim(
        "(ours) with 16,000 tokens of context: P90 TTFP of returning turns, whose KV may have been evicted, p = 0",
        moves(-0.298, within=SPOKEN_P90),
        change(returning("audio_ttfp_s", 90), _at(FULL), since=_at(BASE)),
        "these turns wait for talkers, and for a reload of 1.6 GB (33 ms)",
        remark="the paper does not separate first and later turns",
    ),
    "fig14-kv-p0": claim(
        "(ours) preload and eviction add to scheduling where contexts are large: the same since scheduling alone",
        moves((-0.5, -0.02), words="not given"),
        change(returning("audio_ttfp_s", 90), _at(FULL), since=_at("+ scheduling")),
        "what preload hides of these turns, a reload of 33 ms, is less than seeds differ by",
        remark="the paper calls its staged improvements complementary and prints no number for a stage",
    ),
}

_P = {f"p = {p:g}": {"p": p} for p in PS}
_SHOWN: tuple[tuple[str, Quantity, dict[str, Any], dict[str, Any]], ...] = (
    (SPOKEN, "audio_ttfp_p90", _P, {}),
    (SPOKEN, "completed_rps", _P, {}),
    (
        "16,000 tokens each",
        returning("audio_ttfp_s", 90),
        {"p = 0": {}},
        {"ylabel": "P90 TTFP, returning turns, s"},
    ),
)
draw = figure(
    TITLE,
    *(
        bars(
            quantity,
            {step: {group: _at(step, **at) for group, at in groups.items()} for step in STEPS},
            style=dict(zip(STEPS, engine_looks("vllm_omni", "+", "++", "liveserve").values(), strict=True)),
            title=context,
            **axes,
        )
        for context, quantity, groups, axes in _SHOWN
    ),
    width_ratios=[2, 2, 1],
    caption="Each bar adds one part to the one before; pressure ratio 2.0. Left and middle: a session's "
    "history is its conversation, a few hundred tokens. Right: each session starts with 16,000 more; "
    "only later turns count, whose context may be on the GPU, on the host, or in transfer.",
)
