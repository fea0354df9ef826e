"""The common parts of OmniInfer's cards.

Cards of one part of the system ask its model and serve nobody: a short run of the smallest mixture of experts carries
their seeds.
"""

from reports.papers.prelude import *

SEEDS = [0, 1, 2]
ENGINE, SEEDED = "vllm_omni_wo", "seeds"

SEED_RUNS = {
    SEEDED: Experiment(
        name="omniinfer-seeds",
        engines=[ENGINE],
        workload="poisson",
        set={"deployment": "moe_tiny", "rate": 1.0, "requests": 4, "reply": "text", "modality": "text"},
        seeds=SEEDS,
    )
}
SHORT = {"requests": "2"}


def seeded(compute: Callable[[int], float | None]) -> Measure:
    """Return a measure of the model's value for each seed that was run."""
    return lambda panels: {point.seed: compute(point.seed) for point in of(SEEDED, ENGINE).points(panels)}
