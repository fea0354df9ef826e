"""Parameters of every system for calls: the tick, the input of a frame, admission, and the KV that is kept."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from engines.composition import LibraryParams
from workloads.distributions.frame_period import TARGET_SHARE, WAIT_CAP


def _off(value: Any) -> Any:
    """Return "off" for False: YAML, and so `--set`, reads off as a boolean."""
    return "off" if value is False else value


class CallParams(LibraryParams):
    """The same gateway serves all (Metronome section 4): a named system is a set of defaults. B is the frame period,
    which the workload gives."""

    wait_scope: Literal["batch", "session"] = Field(
        "batch",
        description="what a tick waits for before it returns a session's tokens: a token of every session in it, as "
        "in the paper's batched call, or of that session alone",
    )
    wait_cap: float = Field(
        WAIT_CAP, gt=0, le=1, description="longest wait of a tick, share of B: 0.8 [paper], section 3"
    )
    slots: int = Field(
        1, ge=1, le=64, description="ticks per B; a session is due at one of them; 1: all at the same [paper]"
    )
    template_tokens: int = Field(
        0,
        ge=0,
        le=1024,
        description="text tokens fed with the audio of each frame, such as an instruction; 0: it speaks freely",
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
        description="cost of a tick's call, s: [calibrated] to 2 to 5 ms a frame at N = 96 and 128 (Table 1)",
    )
    feed_s: float = Field(
        2e-5,
        ge=0,
        le=1,
        description="worker time to hand a chunk of a session to the engine and fetch its tokens, s, for each chunk "
        "that is fed again as well: [calibrated] as step_rpc_s",
    )
    target_share: float = Field(
        TARGET_SHARE, gt=0, le=1, description="latency at which the cap falls, share of B: 0.6 s of 2 s [paper], Fig. 7"
    )
    scheduler: str = Field("fcfs", description="scheduling policy of the thinker")
    admission: Annotated[str, BeforeValidator(_off)] = Field(
        "off", description="who is let in; off: everybody, aimd: a cap from the latency of frames (section 4.2)"
    )
    window: int | None = Field(
        None, ge=1, le=10_000_000, description="latest tokens that a call keeps and attends to: W [paper]; null: all"
    )
    sinks: int = Field(
        0,
        ge=0,
        le=10_000_000,
        description="first tokens that it keeps as well: S; 16 or 32 in the paper's free-running probe, not read in "
        "its serving figures",
    )
    recycle_at: int | None = Field(
        None,
        ge=1,
        le=10_000_000,
        description="logical length since the last time at which a call's request is ended and a new one begun, "
        "tokens: W, the horizon that is compared with (section 5.2, Fig. 10); null: a call keeps its request",
    )
    carry: int = Field(
        448,
        ge=0,
        le=10_000_000,
        description="tokens' worth of the latest audio that the new request starts with: [calibrated] to the median "
        "latency of recycling in Fig. 10, 14 to 17 ms; of 14 to 18 chunks of 28 tokens 16 come nearest to its middle",
    )
    ends_calls: bool = Field(
        True,
        description="whether a call is ended at the engine when its client has gone; false: its request and its KV "
        "stay, one reading of what a worker that was measured before has left (Appendix C)",
    )
    preempts_waiting: bool = Field(False, description="calls that wait can lose their KV to others (vLLM PR 49439)")
    routing: str = Field("session_affinity", description="which thinker replica takes a call, and keeps it")

    @model_validator(mode="after")
    def _shrinks(self) -> "CallParams":
        if self.recycle_at is not None and self.carry >= self.recycle_at:
            raise ValueError(f"carry={self.carry} must be less than recycle_at={self.recycle_at}")
        return self
