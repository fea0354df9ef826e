"""ConServe's parameters, each of its parts with a switch."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class ClassParams(BaseModel):
    """Tells online requests from offline ones."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    offline_priority: int = Field(
        1, ge=-1000, le=1000, description="requests of this priority or a less urgent one (higher) are offline"
    )


class OrderParams(ClassParams):
    """Parameters of the token-level scheduler and of preemption within a step (paper sections 4.2 to 4.4)."""

    slo_scheduler: bool = Field(
        True,
        description="size each step by predicted time (Algorithm 1); off: online first, then offline, up to "
        "max_num_batched_tokens",
    )
    layer_preemption: bool = Field(
        True, description="offline requests leave the step under way at its next safepoint (Algorithm 2)"
    )
    safepoint_layers: int = Field(4, ge=1, le=1000, description="layers between two safepoints (section 4.4)")
    safepoint_s: float = Field(
        10e-6, ge=0, le=0.1, description="what a safepoint costs one GPU, s: below 10 us by the paper"
    )
    safepoint_split_s: float = Field(
        167.2e-6,
        ge=0,
        le=0.1,
        description="what it costs GPUs that share a decoder, s: 167.2 us on four by the paper, lag of ranks included",
    )
    offline_mode: bool = Field(
        True, description="without online requests, steps of the size that is most efficient; off: as with them"
    )
    tbt_slo_s: float | None = Field(
        None, gt=0, le=86_400, description="t_TBT, s; default: the tightest of the online requests that are there"
    )
    ttft_slo_s: float | None = Field(
        None, gt=0, le=86_400, description="t_TTFT of Algorithm 2, s; default: as the arriving request says"
    )
    guard: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="share of the time limit that offline tokens leave free for errors of the prediction; default: as "
        "much as the profile's own steps near the limit last longer than predicted",
    )
    admit: Literal["prompt", "chunk"] = Field(
        "prompt",
        description="a waiting request is let in when its whole prompt fits into the pool, or when its first chunk "
        "does, by which documents that are half read are taken back again and again",
    )
    ttft_fill: bool = Field(
        True,
        description="a step that ends an online prompt takes offline tokens only as far as its t_TTFT allows; off: as "
        "far as t_TBT does, the only limit that Algorithm 1 writes",
    )
    online_reserve: float = Field(
        0.01, ge=0, lt=1, description="share of the pool that offline requests leave free: [chosen]"
    )


class QueueParams(ClassParams):
    """Parameters that tell Non-Preemptive online requests from offline ones."""


Resume = Literal["recompute", "swap", "ic", "ic_prefetch"]


class SchedulerParams(OrderParams):
    """Parameters of the scheduler: its own, and the return of preempted requests' KV, if our manager controls it."""

    resume: Resume | None = None


class KvParams(ClassParams):
    """Parameters of the KV of preempted requests (paper section 4.5)."""

    resume: Resume = Field(
        "ic_prefetch",
        description="recompute: it is lost; swap: copied to the host when it is lost, and back, while steps wait; ic: "
        "copied as it is computed, steps wait for it to come back; ic_prefetch: it comes back during the steps",
    )


class Params(OrderParams, KvParams):
    """The parameters of the whole system."""
