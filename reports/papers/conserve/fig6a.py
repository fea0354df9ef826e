"""Fig. 6a: tails and offline throughput over the online rate, Llama-3.1-8B."""

from collections.abc import Mapping
from typing import Any

from reports.figures.picture import LeftOut, Picture
from reports.measured import Run
from reports.papers.conserve.common import (
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
from reports.quantities import average, largest
from reports.stated import claim, level, times

TITLE = "Fig. 6a: online tails and offline throughput over the online rate, Llama-3.1-8B and Qwen2.5-14B on one H100"

RATES = (2, 3, 4)
"""[chosen] requests/s: below, fewer than one token in a hundred waits for a prompt, so that Online-Only's P99 TBT is
that of a decode step, 9 ms, which no step with a document in it keeps to."""
EXPERIMENTS = {
    panel: experiment
    for rate in RATES
    for panel, experiment in load(
        f"rate {rate}", SLO["rate 2"], rate=float(rate), requests=120 * rate
    ).items()
} | load("14b", SLO["14b"], deployment="qwen2_5_14b_h100", rate=1.0, requests=120)
QUICK = {"requests": "40"}

PAPER = {"ttft": 1.25, "tbt": 1.19, "of optimal": 0.823, "over Sarathi-P": 3.0}


def _each(quantity: str, engine: str, to: str) -> list[Any]:
    return [against(quantity, f"rate {rate}", engine, to) for rate in RATES]


_LONGER = "Online-Only reads a prompt in one step, which is just what t_TBT allows: with replies in it there are two"
CLAIMS = [
    claim(
        "fig6a-ttft",
        "P99 TTFT within 25 % of Online-Only at every rate (largest ratio)",
        level((1.0, 1.25), "×", within=0.05),
        largest(*_each(TTFT, OURS, ONLINE_ONLY)),
        "× {ours:.2f}: " + _LONGER,
    ),
    claim(
        "fig6a-tbt",
        "P99 TBT within 19 % of Online-Only at every rate (largest ratio)",
        level((1.0, 1.19), "×", within=0.05),
        largest(*_each(TBT, OURS, ONLINE_ONLY)),
        "× {ours:.2f}: the prediction is too low for steps that mix long contexts and prompts",
    ),
    claim(
        "fig6a-optimal",
        "82.3 % of the optimal offline throughput, which is Non-Preemptive's, on average",
        level(0.823, "%", within=0.08),
        average(*_each(TPS, OURS, NON_PREEMPTIVE)),
        "{percent:.0f} %: the GPU is bound by arithmetic in all of them, and nothing is recomputed",
    ),
    claim(
        "fig6a-sarathi",
        "3.0 × the offline throughput of Sarathi-P on average",
        times(3.0, within=0.5),
        average(*_each(TPS, OURS, SARATHI)),
        "× {ours:.2f}: Sarathi-P loses what it computes again",
    ),
    claim(
        "fig6a-sarathi-ttft",
        "lower P99 TTFT than Sarathi-P at every rate (largest ratio)",
        times((0.3, 0.9), within=0.05, words="below 1"),
        largest(*_each(TTFT, OURS, SARATHI)),
    ),
    claim(
        "fig6a-sarathi-tbt",
        "lower P99 TBT than Sarathi-P at every rate (largest ratio)",
        times((0.2, 0.9), within=0.05, words="below 1"),
        largest(*_each(TBT, OURS, SARATHI)),
    ),
    claim(
        "fig6a-14b-ttft",
        "Qwen2.5-14B, 1 request/s: P99 TTFT within 25 % of Online-Only",
        level((1.0, 1.25), "×", within=0.05),
        against(TTFT, "14b", OURS, ONLINE_ONLY),
        "× {ours:.2f}: " + _LONGER,
    ),
    claim(
        "fig6a-14b-tbt",
        "Qwen2.5-14B: P99 TBT within 19 % of Online-Only",
        level((1.0, 1.19), "×", within=0.05),
        against(TBT, "14b", OURS, ONLINE_ONLY),
        "× {ours:.2f}",
    ),
    claim(
        "fig6a-14b-sarathi",
        "Qwen2.5-14B: 3.0 × the offline throughput of Sarathi-P",
        times(3.0, within=0.5),
        against(TPS, "14b", OURS, SARATHI),
        "× {ours:.2f}: Sarathi-P loses what it computes again",
    ),
    *(each for name in ("rate 2", "14b") for each in slo_check(name, SLO[name])),
]


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """Three panels over the rate."""
    caption = "Left and middle: lower is better; right: higher is better. ConServe is held to Online-Only's own P99."
    return drawn("fig6a", TITLE, "online requests/s", {r: f"rate {r}" for r in RATES}, panels, caption)
