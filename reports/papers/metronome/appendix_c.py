"""Appendix C: a sweep over N on one long-lived worker, where the paper asks for a fresh one for each N.

The paper names residual engine state and other jobs on its GPU as causes, and not which state. We use the simplest:
sessions of earlier points whose clients have left and whose requests were not ended, so their KV stays. N and pool
are a quarter of the paper's, which leaves every share as it is.
"""

from typing import Any

from reports.claims.quantities import of, value
from reports.claims.stated import claim, level
from reports.figures.dashboard import views_by_engine
from reports.papers.metronome.calls import BASELINE, OURS, PAIR, SEEDS, calls
from reports.papers.metronome.measures import FEW_MS, STEP_CALL, latency_percentile

TITLE = "Appendix C: a sweep over N on one worker, with calls that end and calls that stay"

NS = [8, 16, 24, 32]
POINT_S = 90.0
_ENDED, _LEFT = "calls end with their client", "calls stay"
_SWEEP: dict[str, Any] = {
    "sessions": sum(NS),
    "sweep": NS,
    "duration_s": POINT_S * len(NS),
    "kv_pool_blocks": 8125,
    "seeds": SEEDS[:3],
}
EXPERIMENTS = {
    _ENDED: calls("appendix-c", [BASELINE], **_SWEEP),
    _LEFT: calls("appendix-c", [BASELINE, OURS], ends_calls=False, **_SWEEP),
}

PAPER = {"collapses": (POINT_S * (len(NS) - 1), POINT_S * len(NS))}

_LAST = latency_percentile(50, since=1 - 1 / len(NS))
"""Median latency at the last N of the sweep."""
_ADDS_UP = (
    "48 calls of 90 s leave 48 × 45 frames × 55 tokens, 119,000 of 130,000, so the pool is full early "
    "in the last point, or before it if a run's frames are longer"
)

CLAIMS = {
    "appendix-c-collapses": claim(
        "a sweep makes unbounded KV appear to collapse at N = 128, here 32 on a quarter of the pool (time of the wall)",
        level(PAPER["collapses"], "s", words="at the largest N"),
        value("wall_s", of(_LEFT, BASELINE)),
        check=_ADDS_UP,
        remark="if calls stay: our reading of 'residual engine state'. The paper says N = 128 to 160",
    ),
    "appendix-c-fresh": claim(
        "which a worker without that state does not show (median latency at the last N of the sweep)",
        level(FEW_MS, "ms", words="flat"),
        value(_LAST, of(_ENDED, BASELINE)),
        fitted=STEP_CALL,
        remark="vLLM's engine itself keeps no harmful state: once calls have ended, a used worker is as good "
        "as a fresh one",
    ),
}

draw = views_by_engine(
    TITLE, EXPERIMENTS, PAIR, f"One run after another on one worker: N = {', '.join(map(str, NS))}, {POINT_S:g} s each."
)
