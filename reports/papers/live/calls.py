"""Calls in virtual time and over real sockets: frames whose audio never stops, until a small pool is full.

As in `parity`, nothing is shared but the engine's code and the model of its GPU. A call's audio goes over its
WebSocket frame by frame, and the model sets its tokens, so `run_cv` is 0 on both sides. Over sockets the server's
pool is invisible, but the effect of a full one on latency and speech is not.
"""

from typing import Any

from reports.claims.claim import Claim
from reports.claims.quantities import difference, of, ratio
from reports.claims.stated import Number, claim, level
from reports.figures.dashboard import views_by_engine
from reports.papers.live.parity import PARITY, SOCKETS, VIRTUAL, WHY, both_sides

TITLE = "Parity of calls: unbounded and windowed KV, in virtual time and over real sockets"

ENGINES = ["vllm_realtime", "metronome"]
SETTINGS: dict[str, Any] = {
    "deployment": "qwen3_omni_pro6000",
    "sessions": 16,
    "duration_s": 80,
    "template_tokens": 21,
    "run_cv": 0,
    "network_ms": 0,
    "kv_pool_blocks": 1300,  # 20,800 tokens, which 16 calls at 55 a frame fill in 47 s
}
EXPERIMENTS = both_sides("calls", ENGINES, "metronome", SETTINGS)
QUICK = {"duration_s": "60"}

_METRICS: dict[str, tuple[str, Number]] = {
    "frame_latency_p50": ("median frame latency", level(0.0, "ms", within=0.005, words="the same")),
    "frames_with_speech": ("frames with speech", level(1.0, "×", within=PARITY)),
    "wall_s": ("time of the wall", level(1.0, "×", within=PARITY)),
}


def _same(metric: str, engine: str) -> Claim:
    text, number = _METRICS[metric]
    sides = of(SOCKETS, engine), of(VIRTUAL, engine)
    less = number.unit == "ms"
    return claim(
        f"{text} of {engine}, over sockets {'less' if less else '/'} in virtual time",
        number,
        difference(metric, sides[0], less=sides[1]) if less else ratio(metric, sides[0], to=sides[1]),
        WHY,
    )


CLAIMS = {
    f"calls-{engine}-{metric}": _same(metric, engine)
    for metric in _METRICS
    for engine in ENGINES
    if (metric, engine) != ("wall_s", "metronome")  # it has none
}

draw = views_by_engine(TITLE, EXPERIMENTS, ENGINES)
