"""HyGen's parameters."""

from pydantic import Field

from engines.co_serving.class_params import ClassParams


class OrderParams(ClassParams):
    """Parameters of the two-phase scheduler and of the order of offline requests."""

    latency_budget_s: float | None = Field(
        None,
        gt=0,
        le=86_400,
        description="predicted time of a step up to which offline requests are added, s; HyGen's profiler searches it "
        "by test runs; default: the tightest t_TBT of the online requests that are there",
    )
    prefix_share: float = Field(
        1.0,
        ge=0,
        le=1,
        description="share of offline requests let in by the order of the prefix tree (the utility ratio); the others "
        "have waited longest",
    )
