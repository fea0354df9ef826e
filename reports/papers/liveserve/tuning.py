"""The offline sweep of LiveServe's weights: the ratio of alpha to beta with the least waste and stall, stage by
stage.

A mock workload that no figure is measured on; the two weights of the other stage are 1 meanwhile. Each pair is judged
by `w / w_max + k / k_max`: w the wasted token ratio, k the KV stall, each over the largest that any ratio of the
stage gave. The weights that LiveServe runs with, `engines/systems/liveserve/tuned.yaml`, were chosen so on an earlier
server. On today's the best ratio of the thinker differs from them by less than the seeds do.

The KV stall is the time that runnable requests wait because blocks are short. vLLM does not say what a waiting
request waits for, so it is taken as the time from a request's arrival in the stage's queue to its first step, summed
over the run: blocks are what binds in the mock workload, whose contexts overfill the pool.

Ratios reach far below 1. The KV term of eq. 1 is a share of the pool times another, at most 1; where the gate asks, a
lead is beyond its cap and exposure at least 9.6 (thinker) or 4.3 (talker). So no ratio above a tenth (a quarter) can
turn a utility's sign, and all of those measure nearly the same. At the talker none but 0 decides here: its requests
hold half a per cent of its pool.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from harness.experiments.experiment import Experiment
from harness.request_tables.stages import ENTRY, TALKER
from reports.claims.quantities import Panels, Quantity, of, spread
from reports.figures.forms import picture
from reports.figures.picture import LeftOut
from reports.figures.style import BROKEN, INK, MUTED
from reports.papers.liveserve.common import PAIR_OF_QWEN, SERVED

TITLE = "Sweep of alpha and beta: waste and KV stall, each over its largest"

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
"""alpha / beta -> the pair; the larger one is 1."""

SEEDS = [1000, 1001, 1002]
"""Seeds of the sweep; figures are measured on lower seeds, and weights are never tuned on those."""

SETTINGS: dict[str, Any] = {
    **SERVED,
    "deployment": PAIR_OF_QWEN,
    "sessions": 64,
    "p": 0.5,
    "modality": "audio",
    "reply": "speech",
    "turns": 4,
    "c": 16,
    "kv_pool_blocks": 192,
    "truncate_prompts": True,
}
"""The mock workload on the server of LiveServe's figures: 16 concurrent callers with contexts of about 1.5 times the
thinker's pool, and some alone beyond it. [chosen]"""


def _weights(stage: str, pair: tuple[float, float]) -> dict[str, float]:
    return {
        f"{each}_{weight}": value
        for each in STAGES
        for weight, value in zip(("alpha", "beta"), pair if each == stage else (1.0, 1.0), strict=True)
    }


EXPERIMENTS = {
    f"{stage}, {ratio}": Experiment(
        name="liveserve-tuning",
        engines=["liveserve"],
        workload="interactive",
        set={**SETTINGS, **_weights(stage, pair)},
        seeds=SEEDS,
    )
    for stage in STAGES
    for ratio, pair in RATIOS.items()
}
QUICK = {"sessions": "16"}


class Tried(NamedTuple):
    """One ratio that was measured: medians over its seeds, and both over the largest of their stage, summed."""

    wasted_token_ratio: float
    kv_stall_s: float
    cost: float


def judged(panels: Panels, stage: str) -> dict[str, Tried]:
    """Return ratio -> result, without ratios that were not measured."""
    points = {ratio: of(f"{stage}, {ratio}", "liveserve").points(panels) for ratio in RATIOS}
    quantities: tuple[Quantity, Quantity] = ("wasted_token_ratio", _stall(stage))
    medians = {r: [spread(runs, quantity).median for quantity in quantities] for r, runs in points.items()}
    complete = {r: [m for m in pair if m is not None] for r, pair in medians.items() if None not in pair}
    most = [max(column, default=0.0) for column in zip(*complete.values(), strict=True)]
    return {
        ratio: Tried(w, k, sum(value / top if top else 0.0 for value, top in zip((w, k), most, strict=True)))
        for ratio, (w, k) in complete.items()
    }


def _stall(stage: str) -> Quantity:
    column = f"queueing_{QUEUES[stage]}_s"
    return lambda point: float(point.requests[column].to_numpy(float, na_value=0.0).sum())


def cheapest(tried: Mapping[str, Tried]) -> list[str]:
    """The ratios of least cost, the nearest to 1 first, which is chosen; costs are compared in a millionth, as waits
    are sums of floats."""
    least = min((each.cost for each in tried.values()), default=0.0)
    same = [ratio for ratio, each in tried.items() if each.cost - least < 1e-6]
    return sorted(same, key=lambda ratio: abs(RATIOS[ratio][0] - RATIOS[ratio][1]))


@picture(TITLE, len(STAGES), sharey=True)
def draw(panels: Panels, *axes: Any) -> str | LeftOut:
    """A panel for each stage: waste, stall and their sum over the ratio, the chosen one marked."""
    results = {stage: judged(panels, stage) for stage in STAGES}
    if not all(results.values()):
        return LeftOut("", TITLE, "a stage has no point that is finished")
    choices = []
    for (stage, tried), panel in zip(results.items(), axes, strict=True):
        xs = [list(RATIOS).index(ratio) for ratio in tried]
        for column, label, colour, mark in ((0, "wasted tokens", BROKEN, "v"), (1, "KV stall", MUTED, "s")):
            values = [each[column] for each in tried.values()]
            shares = [value / max(values) if max(values) else 0.0 for value in values]
            panel.plot(xs, shares, color=colour, marker=mark, lw=1.4, label=label)
        panel.plot(xs, [each.cost for each in tried.values()], color=INK, marker="o", label="sum")
        chosen, *equals = cheapest(tried)
        panel.axvline(list(RATIOS).index(chosen), color=INK, lw=0.8, ls=(0, (2, 3)))
        panel.set_title(f"{stage}: alpha/beta = {chosen}")
        panel.set_xticks(range(len(RATIOS)), list(RATIOS))
        panel.set(xlabel="alpha / beta", ylim=(0, 2.1))
        alpha, beta = RATIOS[chosen]
        as_good = f", of the same cost as {', '.join(equals)}" if equals else ""
        choices.append(f"{stage} {alpha:g} : {beta:g} (cost {tried[chosen].cost:.3f}{as_good})")
    return (
        "Lower is better; the dotted line is the ratio with the lowest cost, among equals the one "
        f"nearest 1: {'; '.join(choices)}."
    )
