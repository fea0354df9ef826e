"""Fig. 9: Llama-3.1-8B under BurstGPT's bursts: throughput of each way to co-serve."""

from collections.abc import Mapping
from typing import Any

from reports.figures.picture import LeftOut, Picture
from reports.measured import Run
from reports.papers.conserve.common import (
    BURSTGPT,
    NON_PREEMPTIVE,
    ONLINE_ONLY,
    OURS,
    SARATHI,
    SLO,
    TBT,
    TPS,
    TTFT,
    against,
    drawn,
    load,
    slo_check,
)
from reports.stated import claim, level, times

TITLE = "Fig. 9: Llama-3.1-8B under BurstGPT's bursts, mixed documents"

_LOAD = "8b burst"
EXPERIMENTS = load(_LOAD, SLO[_LOAD], deployment="llama_8b_h100", rate=3.0, requests=540, **BURSTGPT)
QUICK = {"requests": "120"}

PAPER = {"conserve": 2645, "sarathi_p": 661, "of optimal": 0.88}

CLAIMS = [
    claim(
        "fig9-optimal",
        "88 % of the optimal offline throughput",
        level(0.88, "%", within=0.08),
        against(TPS, _LOAD, OURS, NON_PREEMPTIVE),
        "{percent:.0f} %: nothing is recomputed, and safepoints and shorter steps cost little",
    ),
    claim(
        "fig9-sarathi",
        "2,645 tokens/s against Sarathi-P's 661: × 4.0",
        times(4.0, within=0.8),
        against(TPS, _LOAD, OURS, SARATHI),
        "× {ours:.2f}: Sarathi-P loses what it computes again",
    ),
    claim(
        "fig9-ttft",
        "P99 TTFT close to Online-Only's",
        level((1.0, 1.25), "×", within=0.05),
        against(TTFT, _LOAD, OURS, ONLINE_ONLY),
        "× {ours:.2f}",
    ),
    claim(
        "fig9-tbt",
        "P99 TBT close to Online-Only's",
        level((1.0, 1.19), "×", within=0.05),
        against(TBT, _LOAD, OURS, ONLINE_ONLY),
        "× {ours:.2f}",
    ),
    *slo_check(_LOAD, SLO[_LOAD]),
]


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """One point of each engine."""
    caption = "The paper: 2,645 tokens/s of ConServe, 661 of Sarathi-P; the rate is chosen."
    return drawn("fig9", TITLE, "online requests/s", {3: _LOAD}, panels, caption)
