"""Nova's parameters, each of its parts with a switch."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class StreamParams(BaseModel):
    """Parameters of stages on plain streams: none."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TurnParams(StreamParams):
    """Parameters of stages that take turns on the GPU."""

    decode_threshold: int = Field(
        5, ge=1, le=1_000_000, description="decodes run when this number waits, or nothing else does (PF-Limit: 5)"
    )
    decode_quantum: Literal["drain", "iteration"] = Field(
        "drain", description="and then until all of them have ended, or for one iteration: [chosen]"
    )


class PartitionParams(StreamParams):
    """Parameters of stages on shares of the SMs (paper section III-C and its hyper-parameters in V-A)."""

    adaptive: bool = Field(
        True, description="take SMs from decode as screenshots pile up, by equation (5); off: the default shares always"
    )
    decode_sms_vision: int | None = Field(
        None,
        ge=2,
        le=10_000,
        description="SMs of decode during vision, N_default; default: searched by equation (3) (paper: 24)",
    )
    decode_sms_prefill: int | None = Field(
        None,
        ge=2,
        le=10_000,
        description="SMs of decode during a prefill, N_default; default: searched by equation (3) (paper: 30)",
    )
    least_decode_sms: int = Field(12, ge=2, le=10_000, description="SMs that decode keeps, N_min")
    alpha_vision: int = Field(
        4, ge=0, le=10_000, description="SMs that decode gives up for each further request, during vision"
    )
    alpha_prefill: int = Field(6, ge=0, le=10_000, description="the same during a prefill")
    mean_output_tokens: float = Field(
        50.0,
        gt=0,
        le=1_000_000,
        description="tokens of a reply on average, for which shares are searched (paper: 40 to 60)",
    )
    rho_weighting: Literal["time", "iterations"] = Field(
        "time",
        description="equation (2): iterations during vision and during prefill by the time of each, or by how many fit "
        "into it",
    )
    repartition_s: float = Field(
        1e-4,
        ge=0,
        le=1,
        description="seconds before each pass in which its worker synchronises with the scheduler and changes its "
        'share; 0: free. The paper says "lightweight" and prints no number (V-G, Fig. 16) [chosen]',
    )


class ChunkParams(StreamParams):
    """Parameters of vLLM's chunked prefill."""

    chunk_tokens: int = Field(
        128,
        ge=16,
        le=10_000_000,
        description="tokens of a step at most, decodes first, prompts with the rest (paper: 128)",
    )
