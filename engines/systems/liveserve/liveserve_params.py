"""LiveServe's parameters. The paper gives none of the values; each default states its reason."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from workloads.errors import validate
from workloads.files.yaml_file import read_yaml

SHIPPED = Path(__file__).with_name("tuned.yaml")
"""File of LiveServe's default parameters, with all the data that led to them."""


class Weights(BaseModel):
    """The weights alpha and beta of one stage; only their ratio orders requests."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    alpha: float = Field(ge=0, le=1e6)
    beta: float = Field(ge=0, le=1e6)


class Tuned(BaseModel):
    weights: dict[str, Weights]


@cache
def shipped() -> dict[str, Weights]:
    """Return the weights that ship with LiveServe, by stage."""
    return validate(Tuned, read_yaml(SHIPPED), str(SHIPPED)).weights


def _switch(value: Any) -> Any:
    """Return "on" or "off" for a boolean: YAML, and so `--set`, reads on and off as booleans."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def _tuned(stage: str, weight: str) -> Callable[[], float | None]:
    """Return a weight of eq. 1 as the offline sweep found it; None if it found none."""
    return lambda: getattr(shipped().get(stage), weight, None)


class Telemetry(BaseModel):
    """Parameters that both halves of the system use."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    telemetry_timeout_s: float = Field(
        2.0, gt=0, le=86_400, description="without a playback ack for this long: stock order"
    )


class OrderParams(Telemetry):
    """Parameters of the urgency scheduler (paper section 4), per stage if the paper has a stage index."""

    scheduling: bool = Field(True, description="urgency scheduling; off: stock vLLM order, byte for byte")
    u2_mode: Literal["strict", "yielding", "work_conserving"] = Field(
        "strict",
        description="who of U2 joins a talker's step that U0 or U1 waits for. strict: nobody; yielding: as many as "
        "leave the stage a quarter of what it could make beyond what is heard; work_conserving: everybody who fits "
        "(Algorithm 1 alone)",
    )
    await_text: bool = Field(
        True,
        description="U2 begins no step of the talker while a first packet only waits for its next token of text to be "
        "fetched; off: it does, as that packet is not in Algorithm 1's ready set",
    )
    pacing: Literal["interrupted", "always", "never"] = Field(
        "interrupted",
        description="when U2 waits while its lead exceeds lead_cap_s, unless KV pressure outweighs it. interrupted: "
        "where listeners cut replies short",
    )
    keep_up: bool = Field(
        False,
        description="a reply begins only while the talker would still make what all who need it hear, so that no other "
        "one breaks; not in the paper",
    )
    talker_safe_s: float = Field(
        2.0, gt=0, le=86_400, description="P_safe at the talker, s of audio: one steady codec chunk"
    )
    thinker_safe_s: float = Field(
        1.0, gt=0, le=86_400, description="P_safe at the thinker, s of audio: covers the talker's prefill"
    )
    talker_alpha: float | None = Field(
        default_factory=_tuned("talker", "alpha"),
        ge=0,
        le=1e6,
        description="weight of barge-in exposure at the talker (eq. 1), by default from tuned.yaml; null: not "
        "known, U2 goes by ready age",
    )
    talker_beta: float | None = Field(
        default_factory=_tuned("talker", "beta"),
        ge=0,
        le=1e6,
        description="weight of KV pressure at the talker (eq. 1), as talker_alpha",
    )
    thinker_alpha: float | None = Field(
        default_factory=_tuned("thinker", "alpha"),
        ge=0,
        le=1e6,
        description="weight of barge-in exposure at the thinker (eq. 1), as talker_alpha",
    )
    thinker_beta: float | None = Field(
        default_factory=_tuned("thinker", "beta"),
        ge=0,
        le=1e6,
        description="weight of KV pressure at the thinker (eq. 1), as talker_alpha",
    )
    kv_aware: bool = Field(
        True, description="count KV pressure in the utility of U2; off: barge-in exposure alone (Fig. 17)"
    )
    lead_cap_s: float = Field(
        10.6,
        gt=0,
        le=86_400,
        description="lead over playback beyond which U2 waits: 65.9 s - 55.3 s, derived from Fig. 15 right",
    )
    lead_growth: float = Field(
        0.0,
        ge=0,
        le=100,
        exclude_if=lambda growth: not growth,
        description="seconds that lead_cap_s grows by with each second that its listener has heard of the reply; a cap "
        "of 2 s that grows by 0.16 reaches the 10.6 s of Fig. 15 right, too, at the end of that reply",
    )
    on_misfit: Literal["break", "skip"] = Field("break", description="at the first request that does not fit (line 14)")
    kv_relief: bool = Field(
        True,
        description="while an urgent request lacks KV blocks, who holds some runs on whatever its lead, and so returns "
        "them; off: Algorithm 1's strict stop, with which long contexts wait for paused replies",
    )
    buffer_basis: Literal["generated", "delivered"] = Field(
        "generated", description="audio that counts as the talker's buffer: generated by it or delivered to the client"
    )
    delivered_safe_s: float = Field(
        0.3, ge=0, le=86_400, description="delivered audio below which a request is urgent whatever has been generated"
    )
    thinker_buffer: Literal["local", "cumulative"] = Field(
        "local", description="the thinker's buffer: text the talker has not taken, or the talker's buffer on top"
    )


class KvParams(Telemetry):
    """Parameters of the thinker's KV manager (section 5)."""

    eviction: Annotated[Literal["off", "log_only", "on"], BeforeValidator(_switch)] = Field(
        "on",
        description="who loses idle KV. on: the session with the latest predicted next use (section 5.1); log_only: "
        "the least recently used, counting where the index differs; off: the least recently used",
    )
    eviction_index: Literal["heap", "tail_scan"] = Field(
        "heap", description="how the latest next use is found; tail_scan: by looking at every idle block (Table 1)"
    )
    preload: bool = Field(True, description="load a session's KV from the host while its user speaks (section 5.2)")
    preload_piece_blocks: int = Field(
        256,
        ge=1,
        le=10_000_000,
        description="blocks of one background load, all that a foreground load waits for: [chosen] 8 ms at 50 GB/s",
    )
    preload_bandwidth_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="share of the copy engine that admission reckons with: [chosen], as pieces wait for steps",
    )
    preload_margin_s: float = Field(
        0.020, ge=0, le=86_400, description="time to spare before the turn is expected: [chosen]"
    )
    preload_wait_s: float = Field(
        0.5, ge=0, le=86_400, description="longest wait for blocks before a preload is given up: [chosen]"
    )
    preload_ttl_s: float = Field(10.0, gt=0, le=86_400, description="protection of KV that was loaded early: [chosen]")
    protect_cap: float = Field(
        0.20, gt=0, le=1, description="share of the pool that KV loaded early, or on its way, may take up: [chosen]"
    )
    prefill_ahead_s: float = Field(
        0.0,
        ge=0,
        le=86_400,
        exclude_if=lambda seconds: not seconds,
        description="seconds of a user's speech after which the prompt so far is computed, again and again "
        "(section 3); 0: only when the turn is complete",
    )


class Params(OrderParams, KvParams):
    """The parameters of the whole system."""
