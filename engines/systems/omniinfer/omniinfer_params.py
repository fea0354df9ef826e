"""Parameters of the experts' load, of their placement, and of compressed attention layers."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class LoadParams(BaseModel):
    """Parameters of the tokens of each expert; a placement in order needs no others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    expert_skew: float = Field(
        0.55,
        ge=0,
        le=2,
        description="exponent of Zipf's law of a layer's experts: 0 is uniform; 0.5 to 0.6 explain the paper's run "
        "without OmniPlacement",
    )
    expert_drift_s: float | None = Field(
        None, gt=0, le=1e7, description="time within which a part of the experts change their ranks, s; default: never"
    )
    expert_drift_share: float = Field(0.25, gt=0, le=1, description="that part: [chosen]")
    routing_trace: str | None = Field(
        None, description="file of recorded routing, instead of a sampled one: Parquet of step, layer, expert, tokens"
    )
    load_every: int = Field(
        4, ge=1, le=1_000_000, description="steps for which one draw of the loads holds; 1: a draw for each: [chosen]"
    )


class ReplicaParams(LoadParams):
    """Parameters of vLLM's own balancer: slots, and how they follow the load."""

    redundant_slots: int | None = Field(
        None,
        ge=0,
        le=100_000,
        description="slots of a die beyond its experts, over all layers; default: one in each layer",
    )
    rebalance: bool = Field(True, description="follow the load in service; off: the first layout stays")
    rebalance_every_s: float = Field(
        60.0, gt=0, le=1e7, description="between two readings of the counters, s: as OmniInfer's open-source code"
    )
    copy_share: float = Field(
        0.05, gt=0, lt=1, description="of the links that copies of experts take while steps go on: [chosen]"
    )


class PlacementParams(ReplicaParams):
    """Parameters of OmniPlacement (paper section 4.1)."""

    placement_mode: Literal["paper", "oss"] = Field(
        "paper", description="where the paper and its open-source code differ: budget, forecast, moves"
    )
    rebalance_window: int = Field(20, ge=1, le=1_000_000, description="readings that are remembered: as the code")
    rebalance_keep: float = Field(
        0.6, ge=0, lt=1, description="of the average load when a new reading comes: as the code"
    )
    rebalance_trigger: float = Field(
        1.1, ge=1, le=1e6, description="imbalance of a layer from which it is looked at: as the code"
    )
    rebalance_margin: float = Field(
        0.05, ge=0, lt=1, description="share by which a new layout must be better: [chosen]"
    )
    weigh_copies: bool = Field(
        True, description="a new layout must also save more step time until the next reading than its copies cost: ours"
    )
    forecast: Literal["last", "ema", "linear"] | None = Field(
        None,
        description="load of the next interval: the last, an average, or a line through the window; default: linear in "
        "mode paper, ema in mode oss",
    )


SINKS, RECENT = 128, 384
"""The open-source code's values: one block of 128 tokens at the front, three at the end."""


class AttentionParams(BaseModel):
    """Parameters of OmniAttn (paper section 4.2)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    attention_pattern: str | None = Field(
        None,
        description="a 1 for each compressed layer and a 0 for each other, in order; default: every second, 30 of "
        "DeepSeek-R1's 61 as in the open-source code, which of them is not known",
    )
    attention_sinks: int = Field(
        SINKS, ge=0, le=10_000_000, description="first tokens that a compressed layer keeps: as the code"
    )
    attention_recent: int = Field(RECENT, ge=2, le=10_000_000, description="last tokens that it keeps: as the code")
