"""Parameters that every engine for interaction sessions has: the tick, what is fed, and who is let in."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _off(value: Any) -> Any:
    """YAML, and so `--set`, reads off as a boolean."""
    return "off" if value is False else value


class SessionParams(BaseModel):
    """Shared by `vllm_realtime`, `recycling` and `metronome`: the same gateway and worker serve all (Metronome
    section 4). B is the frame period, which the workload gives."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    wait_scope: Literal["batch", "session"] = Field(
        "batch",
        description="what a Step waits for before it returns a session's tokens: a token of every session in it, as "
        "in the paper's batched call, or of that session alone",
    )
    wait_cap: float = Field(
        0.8, gt=0, le=1, description="longest wait of a Step, share of B: 0.8 [paper], section 3"
    )
    slots: int = Field(
        1, ge=1, le=64, description="ticks per B; a session is due at one of them; 1: all at the same [paper]"
    )
    template_tokens: int = Field(
        0,
        ge=0,
        le=1024,
        description="text tokens fed with each frame beside its audio, such as an instruction; 0: it speaks freely",
    )
    on_max_len: Literal["crash_all", "finish_one"] | None = Field(
        None,
        description="when a session reaches max_model_len: crash_all: the engine dies with all of them, as vLLM 0.23 "
        "did (Appendix B); finish_one: that session ends; null: a run in which one could is refused",
    )
    step_rpc_s: float = Field(
        0.0008,
        ge=0,
        le=1,
        description="cost of a Step call, s: [calibrated] to 2 to 5 ms a frame at N = 96 and 128 (Table 1)",
    )
    feed_s: float = Field(
        2e-5,
        ge=0,
        le=1,
        description="worker time to hand a session's chunk to the engine and fetch its tokens, s: [calibrated] as "
        "step_rpc_s",
    )
    admission: Annotated[Literal["off", "aimd"], BeforeValidator(_off)] = Field(
        "off",
        description="aimd: a cap on sessions from the latency of frames (section 4.2); off: all are let in",
    )
    signal: Literal["all", "steady"] = Field(
        "all",
        description="latencies that admission sees: of all frames, or without sessions' first, which alone wait for "
        "the model's work, and without what returns together with them",
    )
    statistic: Literal["p95", "max"] = Field(
        "p95", description="what admission makes of the latencies of a tick: [chosen], the paper does not say"
    )
    target_share: float = Field(
        0.3,
        gt=0,
        le=1,
        description="latency at which the cap falls, share of B: 0.6 s of 2 s [paper], Fig. 7",
    )
    cap_start: int = Field(16, ge=1, description="cap before the first tick: [chosen] one slow start")
    slow_start: int = Field(
        16,
        ge=1,
        description="added to a cap that binds, per tick, before the first touch of the target: [chosen] the rate "
        "offered in Fig. 7",
    )
    increase: int = Field(1, ge=0, description="added to a cap that binds, per tick, after it: [chosen]")
    beta: float = Field(0.9, gt=0, lt=1, description="factor on the cap when the target is touched: [chosen]")
    hold_ticks: int = Field(2, ge=0, description="ticks without change after a touch: [chosen]")
