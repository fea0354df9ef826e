"""The offline sweep of LiveServe's weights: which ratio of alpha to beta wastes and stalls least, stage by stage.

A mock workload that no figure is measured on; the two weights of the other stage are 1 meanwhile. Each pair is
judged by `w / w_max + k / k_max`: w the wasted token ratio, k the KV stall, each over the largest that any ratio
of the stage gave.

The KV stall is the time that runnable requests wait because blocks are short. vLLM does not say what a waiting
request waits for, so it is taken as the time from a request's arrival in the stage's queue to its first step,
summed over the run: blocks are what binds in the mock workload, whose contexts overfill the pool.

Ratios reach far below 1. The KV term of eq. 1 is a share of the pool times another, at most 1; where the gate asks,
a lead is beyond its cap and exposure at least 9.6 (thinker) or 4.3 (talker). So no ratio above a tenth (a quarter) can
turn a utility's sign, and all of those measure nearly the same. At the talker none but 0 decides here: its requests
hold half a per cent of its pool. `undecided` says which ratios cost what the chosen one costs, and the result file as
well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rehearsal.engines.systems.liveserve.tuned import Tried, Tuned, Weights
from rehearsal.harness.experiment import Experiment
from rehearsal.harness.identity import code_hash
from rehearsal.harness.metrics.stages import ENTRY, TALKER
from rehearsal.harness.metrics.stats import across_seeds
from rehearsal.harness.provenance import revision
from rehearsal.harness.record import Record

ENGINE = "liveserve"
QUEUES = {"thinker": ENTRY, "talker": TALKER}
STAGES = tuple(QUEUES)
RATIOS: dict[str, tuple[float, float]] = {
    "0": (0, 1),
    "1/4096": (1 / 4096, 1),
    "1/1024": (1 / 1024, 1),
    "1/256": (1 / 256, 1),
    "1/64": (1 / 64, 1),
    "1/16": (1 / 16, 1),
    "1/4": (0.25, 1),
    "1": (1, 1),
    "inf": (1, 0),
}
"""alpha / beta -> the pair, the larger of which is 1."""

FIRST_SEED = 1000
"""Figures are measured on seeds below; weights are never tuned on those."""

WORKLOAD = "interactive"
SETTINGS: dict[str, Any] = {
    "deployment": "qwen3_omni_2gpu",
    "scale": "talker.host_s=0.01,talker.host_s_per_request=4.2",
    "first_chunk_frames": 25,
    "sessions": 64,
    "p": 0.5,
    "modality": "audio",
    "reply": "speech",
    "reply_tokens": 12,
    "reply_sigma": 1.5,
    "rounds": 4,
    "c": 16,
    "kv_pool_blocks": 192,
}
"""The mock workload, on the server that LiveServe's figures have. [chosen]: 16 callers at once, whose contexts are
about 1.5 times the thinker's pool."""


def experiments(settings: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, dict[str, Experiment]]:
    """stage -> ratio -> what to measure."""
    return {
        stage: {
            ratio: Experiment(
                name=f"tune-{ENGINE}",
                engines=[ENGINE],
                workload=WORKLOAD,
                set={**settings, **_weights(stage, pair)},
                seeds=list(seeds),
            )
            for ratio, pair in RATIOS.items()
        }
        for stage in STAGES
    }


def chosen(tried: Sequence[Tried], stage: str) -> Tried | None:
    """The pair of least cost; of equals the one whose ratio is nearest 1. None when none was measured."""
    known = [(round(each.cost, 6), each) for each in tried if each.stage == stage and each.cost is not None]
    best = min(known, key=lambda found: (found[0], abs(found[1].alpha - found[1].beta)), default=None)
    return best and best[1]


def undecided(tried: Sequence[Tried], stage: str) -> list[str]:
    """The ratios that cost what the chosen one does, itself among them; empty where it alone does.

    Costs are compared in a millionth: waits are sums of floats.
    """
    costs = {each.ratio: each.cost for each in tried if each.stage == stage and each.cost is not None}
    same = [ratio for ratio, cost in costs.items() if cost - min(costs.values()) < 1e-6]
    return same if len(same) > 1 else []


def judged(records: Mapping[str, Mapping[str, Sequence[Record]]]) -> list[Tried]:
    """stage -> ratio -> finished records, judged; pairs without a value have no cost."""
    found = []
    for stage, by_ratio in records.items():
        medians = {ratio: _medians(stage, own) for ratio, own in by_ratio.items()}
        most = [
            max((value for value in column if value is not None), default=0.0)
            for column in zip(*medians.values(), strict=True)
        ]
        for ratio, values in medians.items():
            alpha, beta = RATIOS[ratio]
            shares = [
                None if value is None else value / top if top else 0.0
                for value, top in zip(values, most, strict=True)
            ]
            cost = None if None in shares else sum(share for share in shares if share is not None)
            row = {"wasted_token_ratio": values[0], "kv_stall_s": values[1], "cost": cost}
            found.append(
                Tried(stage=stage, ratio=ratio, alpha=alpha, beta=beta, seeds=len(by_ratio[ratio]), **row)
            )
    return found


def tuned(tried: Sequence[Tried], settings: Mapping[str, Any], seeds: Sequence[int]) -> Tuned:
    """The result file's content; a stage that nothing was measured of has no weights."""
    found = revision()
    best = {stage: chosen(tried, stage) for stage in STAGES}
    ties = [f"{stage} ({', '.join(same)})" for stage in STAGES if (same := undecided(tried, stage))]
    return Tuned(
        engine=ENGINE,
        weights={stage: Weights(alpha=b.alpha, beta=b.beta) for stage, b in best.items() if b is not None},
        objective="least wasted_token_ratio / largest + kv_stall_s / largest, each stage by itself; of equals the "
        f"ratio nearest 1, which decided at: {'; '.join(ties) or 'no stage'}",
        workload=WORKLOAD,
        settings=dict(settings),
        seeds=list(seeds),
        revision=None if found is None else found["commit"],
        changed=bool(found and found["dirty"]),
        code_hash=code_hash("virtual"),
        measured=list(tried),
    )


def _weights(stage: str, pair: tuple[float, float]) -> dict[str, float]:
    own = {other: (1.0, 1.0) for other in STAGES} | {stage: pair}
    return {
        f"{name}_{weight}": value
        for name, values in own.items()
        for weight, value in zip(("alpha", "beta"), values, strict=True)
    }


def _medians(stage: str, records: Sequence[Record]) -> tuple[float | None, float | None]:
    waste = {i: record.metrics["wasted_token_ratio"]["value"] for i, record in enumerate(records)}
    stall = {
        i: float(record.table("requests")[f"queueing_{QUEUES[stage]}_s"].to_numpy(float, na_value=0.0).sum())
        for i, record in enumerate(records)
    }
    return across_seeds(waste).median, across_seeds(stall).median
