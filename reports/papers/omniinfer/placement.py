"""Section 4.1: how even OmniPlacement makes the load of 64 dies, and how long it stays so.

The section has sentences and no number, and the loads here are ours; Table 2 has what placement does to a cluster.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from reports.claims.quantities import Panels
from reports.claims.stated import claim, level, times
from reports.figures.forms import picture
from reports.papers.omniinfer.common import SEED_RUNS, SHORT, seeded

TITLE = "OmniPlacement: imbalance of 64 dies with 256 experts a layer, under constant and drifting load"

EXPERIMENTS = SEED_RUNS
QUICK = SHORT

LAYERS, EXPERTS, PER_TOKEN, DIES = 8, 256, 8, 64
"""DeepSeek-R1 on the dies of 32 chips; 8 of its 58 layers, which are alike here."""
ALL_LAYERS = 58
BATCH = 48
STEP_S, UNTIL_S = 3.0, 1800.0
"""[chosen] one step in sixty or so is looked at."""
DRIFT_S = 300.0
"""[chosen] within five minutes a quarter of the experts change their ranks."""
SKEWS = np.linspace(0.1, 1.2, 16)
"""[chosen] of layers, where they differ."""

SEQUENTIAL, EPLB, STATIC = "sequential", "EPLB", "static"
LINEAR, AVERAGE, LAST, OSS, EPLB_LIVE = "dynamic", "dynamic, ema", "dynamic, last", "oss", "EPLB, live"
VARIANTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    SEQUENTIAL: ("LoadParams", {}),
    EPLB: ("ReplicaParams", {"rebalance": False}),
    STATIC: ("PlacementParams", {"rebalance": False}),
    EPLB_LIVE: ("ReplicaParams", {}),
    OSS: ("PlacementParams", {"placement_mode": "oss"}),
    LINEAR: ("PlacementParams", {"forecast": "linear"}),
    AVERAGE: ("PlacementParams", {"forecast": "ema"}),
    LAST: ("PlacementParams", {"forecast": "last"}),
}
"""Parameters by the name of their class."""


class Followed(NamedTuple):
    """Imbalance of each step that was looked at, mean over layers, and seconds in which experts were copied."""

    imbalance: np.ndarray
    copy_s: float


@cache
def followed(variant: str, drift_s: float | None, seed: int) -> Followed:
    """Half an hour of a group under one variant."""
    from engines.devices.expert_parallel import ExpertParallel
    from engines.systems.omniinfer import omniinfer_params
    from engines.systems.omniinfer.experts import expert_steps

    group = ExpertParallel(44.04e6, 88.08e6, 7168, 14336, 1.2e12, 301e12, 200e9, 60e-6)
    kind, values = VARIANTS[variant]
    now = [0.0]
    params = getattr(omniinfer_params, kind)(**values, expert_drift_s=drift_s, load_every=1)
    steps = expert_steps(params, group, LAYERS, EXPERTS, PER_TOKEN, DIES, seed, lambda: now[0])
    imbalances = []
    while now[0] < UNTIL_S:
        steps.step([BATCH] * DIES)
        imbalances.append(steps.imbalance)
        now[0] += STEP_S
    return Followed(np.array(imbalances), getattr(steps.placement, "copy_s", 0.0))


def mean(variant: str, drift_s: float | None, seed: int) -> float:
    return float(followed(variant, drift_s, seed).imbalance.mean())


@cache
def of_budget(units: int, seed: int) -> float:
    """Return the mean imbalance of layers of different skew, by the paper's budget over evenly distributed slots."""
    from engines.systems.omniinfer.expert_load import zipf
    from engines.systems.omniinfer.placement import budget, imbalance, static_placement

    rng = np.random.default_rng(seed)
    loads = np.array([rng.permutation(zipf(EXPERTS, skew, PER_TOKEN)) for skew in SKEWS])
    even = np.bincount(np.linspace(0, len(SKEWS) - 1, units).round().astype(int), minlength=len(SKEWS))
    means = [
        np.mean([imbalance(*each) for each in zip(loads, static_placement(loads, DIES, extra), strict=True)])
        for extra in (budget(loads, DIES, units, most=2), even)
    ]
    return float(means[0] / means[1])


def slowed(seed: int) -> float:
    """Return the largest relative slowdown of steps: the share of the links that copies take while they last."""
    from engines.systems.omniinfer.rebalancing import Rebalancing

    copying = followed(LINEAR, DRIFT_S, seed).copy_s * ALL_LAYERS / LAYERS / UNTIL_S
    return copying * (1 / Rebalancing().link_share - 1)


ROBUST = "Sec. 4.1: replicas by a layer's imbalance are more robust than uniform ones"
CLAIMS = {
    "placement-static": claim(
        "the first layout starts highly balanced",
        level((1.0, 1.15), neutral=3.0, words="highly balanced"),
        seeded(lambda seed: mean(STATIC, None, seed)),
        remark="in steps of 24,576 expert tokens, where chance alone gives the fullest die 1.12 times the mean",
    ),
    "placement-dynamic": claim(
        "Algorithm 2 keeps a drifting load balanced (imbalance over that of the first layout)",
        times((0.4, 0.8), words="consistently balanced"),
        seeded(lambda seed: mean(LINEAR, DRIFT_S, seed) / mean(STATIC, DRIFT_S, seed)),
    ),
    "placement-forecast": claim(
        "and does so ahead of the load by predicting it (over the result with only the last reading)",
        times((0.5, 0.99), words="proactive"),
        seeded(lambda seed: mean(LINEAR, DRIFT_S, seed) / mean(LAST, DRIFT_S, seed)),
        "a line through twenty readings of a minute points to the direction before the load turned",
    ),
    "placement-budget-scarce": claim(
        "slots by imbalance, not evenly: 8 for 16 layers whose skew goes from 0.1 to 1.2",
        times((0.3, 0.9), words="more robust"),
        seeded(lambda seed: of_budget(8, seed)),
        fact=ROBUST,
    ),
    "placement-budget": claim(
        "the same with as many slots as layers",
        times((0.3, 0.95), words="more robust"),
        seeded(lambda seed: of_budget(16, seed)),
        "one slot each balances any layer, and flat layers then get none",
        fact=ROBUST,
    ),
    "placement-copies": claim(
        "weights move with minimal impact on steps (largest slowdown)",
        level((0.0, 0.01), "%", words="minimal"),
        seeded(slowed),
        check="copies take a twentieth of the links, so a step gets 5.3 % longer at most; no step is timed",
    ),
}


@picture(TITLE, 2, modelled=True)
def draw(panels: Panels, left: Any, right: Any) -> str:
    """Imbalance over time under drift, and its mean for each variant at rest and under drift."""
    width = 15
    for variant in (SEQUENTIAL, STATIC, OSS, LINEAR, LAST):
        imbalance = followed(variant, DRIFT_S, 0).imbalance
        smooth = np.convolve(imbalance, np.ones(width) / width, "valid")
        left.plot(np.arange(len(smooth)) * STEP_S / 60, smooth, label=variant)
    left.set(xlabel="minutes", ylabel="fullest die over the mean die", ylim=(1, None))
    places = np.arange(len(VARIANTS))
    loads = ((-0.2, None, "at rest", "#8793a3"), (0.2, DRIFT_S, "drifting", "#d55e00"))
    for shift, drift_s, label, colour in loads:
        means = [mean(variant, drift_s, 0) for variant in VARIANTS]
        right.bar(places + shift, means, 0.4, label=label, color=colour)
    right.set_xticks(places, [*VARIANTS], rotation=40, ha="right")
    right.set(ylim=(1, None), ylabel="mean over half an hour")
    return (
        "Modelled: top-8 of 256 experts by Zipf 0.55, 48 requests a die, one slot more on each die; one seed. "
        "Left: averaged over three quarters of a minute."
    )
