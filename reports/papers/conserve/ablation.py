"""Ablation: what each part of ConServe adds, from Sarathi-P upwards (Llama-3.1-8B, 2 requests/s)."""

from reports.papers.conserve.common import *

TITLE = (
    "Ablation: scheduling by predicted time, preemption within a step, KV that is copied as it is computed"
)

_LIMITS = SLO["rate 2"]
_NONE: dict[str, Any] = {
    "slo_scheduler": False,
    "layer_preemption": False,
    "resume": "recompute",
    "online_reserve": 0.0,
}
_SCHEDULER = {**_NONE, "slo_scheduler": True}
_PREEMPTION = {**_SCHEDULER, "layer_preemption": True}
STEPS: Mapping[str, Mapping[str, Any]] = {
    "none": _NONE,
    "scheduler": _SCHEDULER,
    "preemption": _PREEMPTION,
    "all": {**_PREEMPTION, "resume": "ic_prefetch"},
}
"""Each row has the parts of those before it; "none" is Sarathi-P."""
EXPERIMENTS = {
    f"{name}: {BOTH}": both(f"ablation {name}", _LIMITS, engines=[OURS], **parts)
    for name, parts in STEPS.items()
}
QUICK = {"requests": "40"}

PAPER = {"tbt": (0.375, 0.073), "ttft": (1.399, 0.686, 0.523), "throughput": (8810, 11366)}


def _less(quantity: str, before: str, after: str) -> Any:
    return quotient(value(quantity, at(before, OURS)), value(quantity, at(after, OURS)))


CLAIMS = {
    "ablation-tbt": claim(
        "the scheduler: P99 TBT 375 to 73 ms, ÷ 5.1",
        times(375 / 73, within=1.2),
        _less(TBT, "none", "scheduler"),
        "÷ {ours:.2f}: with it steps keep to Online-Only's P99, which is 102 ms here and can be 73 at most there",
    ),
    "ablation-ttft-scheduler": claim(
        "the scheduler: P99 TTFT 1,399 to 686 ms, ÷ 2.0",
        times(1399 / 686, within=0.5),
        _less(TTFT, "none", "scheduler"),
        "÷ {ours:.2f}: an arrival waits for the rest of a step, and then reads its prompt in two",
    ),
    "ablation-ttft-preemption": claim(
        "preemption within a step: P99 TTFT 686 to 523 ms, ÷ 1.31",
        times(686 / 523, within=0.145),
        _less(TTFT, "scheduler", "preemption"),
        "÷ {ours:.2f}: while online prompts are read nobody in the step could leave",
    ),
    "ablation-ttft-worst": claim(
        "and the longest TTFT 866 to 573 ms, ÷ 1.51",
        times(866 / 573, within=0.25),
        _less("online.ttft_max", "scheduler", "preemption"),
        "÷ {ours:.2f}: as before",
    ),
    "ablation-throughput": claim(
        "incremental checkpoints: 8,810 to 11,366 offline tokens/s, × 1.29",
        times(1.29, within=0.145),
        quotient(value(TPS, at("all", OURS)), value(TPS, at("preemption", OURS))),
        "× {ours:.2f}",
    ),
}
