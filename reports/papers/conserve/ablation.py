"""Ablation: what each part of ConServe adds, from Sarathi-P upwards (Llama-3.1-8B, 2 requests/s)."""

from collections.abc import Mapping
from typing import Any

from reports.claims.bands import of_percentile
from reports.claims.quantities import Measure, ratio, value
from reports.claims.stated import claim, level, times
from reports.papers.conserve.loads import BOTH, SLO, at, both
from reports.papers.conserve.measures import BY_TARGET, TBT, TPS, TTFT
from reports.papers.conserve.precision import REQUESTS, offline, p99
from reports.papers.conserve.systems import OURS
from reports.runs.measured import Measured

TITLE = "Ablation: scheduling by predicted time, preemption within a step, incremental KV checkpoints"

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
"""Each row has the parts of the rows before it; "none" is Sarathi-P."""
EXPERIMENTS = {
    f"{name}: {BOTH}": both(f"ablation {name}", _LIMITS, engines=[OURS], **parts) for name, parts in STEPS.items()
}
_IDLE: dict[str, Any] = {"rate": 0.05, "cv": 4.0, "requests": 30}
"""Ten minutes with bursts and idle minutes: at the loads of the figures almost every step has an online request, and
then offline mode does nothing. [chosen]"""
EXPERIMENTS |= {
    f"{name}: {BOTH}": both(name, _LIMITS, engines=[OURS], **parts, **_IDLE)
    for name, parts in {"idle": {}, "idle, no offline mode": {"offline_mode": False}}.items()
}
QUICK = {"requests": "40"}

BY_SCHEDULER = "Sec. 6.5, ablation: the scheduler takes P99 TBT from 375 to 73 ms"
_BY_PREEMPTION = (
    "Sec. 6.5, ablation: preemption in a step takes P99 TTFT from 686 to 523 ms, the longest from 866 to 573"
)
PAPER = {"tbt": (0.375, 0.073), "ttft": (1.399, 0.686, 0.523), "throughput": (8810, 11366)}


def _over(quantity: str, name: str, to: str) -> Measure:
    return ratio(quantity, at(name, OURS), to=at(to, OURS))


def _offline_rounds(point: Measured) -> float | None:
    """The share of its steps that are put together without any online request."""
    counters = point.record.counters
    rounds = counters.get("thinker.rounds")
    return counters.get("thinker.offline_rounds", 0) / rounds if rounds else None


CLAIMS = {
    "ablation-tbt": claim(
        "the scheduler: P99 TBT 375 to 73 ms, ÷ 5.1",
        times(375 / 73, within=p99(REQUESTS)),
        _over(TBT, "none", "scheduler"),
        "÷ {ours:.2f}: with it steps keep to Online-Only's P99, which is 102 ms in our runs and at "
        "most 73 ms in the paper",
        fact=BY_SCHEDULER,
        chosen=BY_TARGET,
    ),
    "ablation-ttft-scheduler": claim(
        "the scheduler: P99 TTFT 1,399 to 686 ms, ÷ 2.0",
        times(1399 / 686, within=p99(REQUESTS)),
        _over(TTFT, "none", "scheduler"),
        "÷ {ours:.2f}: an arrival waits for the rest of a step, and then reads its prompt in two",
        chosen=BY_TARGET,
    ),
    "ablation-ttft-preemption": claim(
        "preemption within a step: P99 TTFT 686 to 523 ms, ÷ 1.31",
        times(686 / 523, within=p99(REQUESTS)),
        _over(TTFT, "scheduler", "preemption"),
        "÷ {ours:.2f}: while online prompts are read no request could leave the step",
        fact=_BY_PREEMPTION,
        chosen=BY_TARGET,
    ),
    "ablation-ttft-worst": claim(
        "and the longest TTFT 866 to 573 ms, ÷ 1.51",
        times(866 / 573, within=of_percentile(1 - 1 / REQUESTS, REQUESTS)),
        _over("online.ttft_max", "scheduler", "preemption"),
        "÷ {ours:.2f}: as before",
        fact=_BY_PREEMPTION,
        chosen=BY_TARGET,
    ),
    "ablation-throughput": claim(
        "incremental checkpoints: 8,810 to 11,366 offline tokens/s, × 1.29",
        times(1.29, within=offline(8810, 11366)),
        _over(TPS, "all", "preemption"),
        "× {ours:.2f}: documents that are let in whole are preempted less, so that there is less to recompute",
    ),
    "ablation-idle-rounds": claim(
        "(ours) offline mode at work, 30 requests in ten minutes: share of steps without an online request",
        level((0.2, 1.0), "%", words="a fifth at least"),
        value(_offline_rounds, at("idle", OURS)),
        "{percent:.0f} %",
    ),
    "ablation-idle-throughput": claim(
        "(ours) it gives the batch more (offline tokens/s with over without)",
        times((1.02, 1.5), words="more"),
        _over(TPS, "idle", "idle, no offline mode"),
        "× {ours:.2f}: steps of t_TBT are as efficient",
    ),
    "ablation-idle-ttft": claim(
        "(ours) and costs the next arrivals nothing (longest TTFT with over without)",
        level(1.0, "×", within=0.1, words="nothing"),
        _over("online.ttft_max", "idle", "idle, no offline mode"),
        "× {ours:.2f}",
    ),
}
