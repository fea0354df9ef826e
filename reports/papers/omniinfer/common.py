"""Common parts of OmniInfer's cards. Cards of one part of the system ask its model and serve no requests: a short run
of the smallest mixture of experts provides their seeds."""

from collections.abc import Callable

from reports.claims.quantities import Measure, of
from reports.papers.experiment import experiment

ENGINE, SEEDED = "vllm_omni_wo", "seeds"

SEED_RUNS = {
    SEEDED: experiment(
        "omniinfer-seeds",
        [ENGINE],
        "poisson",
        {"deployment": "moe_tiny", "rate": 1.0, "requests": 4, "reply": "text", "modality": "text"},
    )
}
SHORT = {"requests": "2"}


def seeded(compute: Callable[[int], float | None]) -> Measure:
    """Return a measure of the model's value for each seed that was run."""
    return lambda panels: {point.seed: compute(point.seed) for point in of(SEEDED, ENGINE).points(panels)}
