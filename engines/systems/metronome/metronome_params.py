"""Parameters of admission by latency. The paper gives the form and the target; every other constant is ours."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class AimdParams(BaseModel):
    """Parameters of `admission=aimd`. The target itself is a share of the tick (`target_share`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    signal: Literal["all", "steady"] = Field(
        "all",
        description="latencies that admission sees: of all frames, or without sessions' first, which alone wait for "
        "the model's work, and without what returns together with them",
    )
    statistic: Literal["p95", "max"] = Field(
        "p95", description="what admission makes of the latencies of a tick: [chosen], the paper does not say"
    )
    cap_start: int = Field(16, ge=1, le=1_000_000, description="cap before the first tick: [chosen] one slow start")
    slow_start: int = Field(
        16,
        ge=1,
        le=1_000_000,
        description="added to a cap that binds, per tick, before the first touch of the target: [chosen] the rate "
        "offered in Fig. 7",
    )
    increase: int = Field(1, ge=0, le=1_000_000, description="added to a cap that binds, per tick, after it: [chosen]")
    beta: float = Field(0.9, gt=0, lt=1, description="factor on the cap when the target is touched: [chosen]")
    hold_ticks: int = Field(2, ge=0, le=1_000_000, description="ticks without change after a touch: [chosen]")


class CapParams(AimdParams):
    """Parameters of the controller: its own, and the promised share of the tick (`CallParams`)."""

    target_share: float
    wait_scope: Literal["batch", "session"]
