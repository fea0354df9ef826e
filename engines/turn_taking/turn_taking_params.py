"""Parameters of a server that listens all the time, and of its errors of hearing in virtual time."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from engines.server import ServerParams
from engines.turn_taking.endpointing import ACCURACY, INFERENCE_S, TIMEOUTS_S


class TurnTakingParams(BaseModel):
    """Names and defaults as OpenAI's, if it has the parameter."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    turn_detection: Literal["server_vad", "semantic"] = Field(
        "server_vad",
        description="server_vad: a turn is over after a silence; semantic: SIMULATED, told whether the "
        f"user has finished and errs at published rates, {INFERENCE_S:g} s after it is asked",
    )
    silence_duration_ms: int = Field(500, ge=0, le=10_000, description="server_vad: silence after which a turn is over")
    eagerness: Literal["low", "medium", "high", "auto"] = Field(
        "auto",
        description="semantic: after how much silence a turn is over that is taken for unfinished: "
        + ", ".join(f"{name} {timeout_s:g} s" for name, timeout_s in TIMEOUTS_S.items()),
    )
    accuracy: Literal["smart_turn_v3", "smart_turn_v3_telephone"] = Field(
        "smart_turn_v3",
        description="semantic: whose rates; of finished turns and of hesitations it calls finished: "
        + ", ".join(
            f"{name} {100 * each.true_positive:.1f} and {100 * each.false_positive:.1f} %"
            for name, each in ACCURACY.items()
        ),
    )
    interrupt_response: bool = Field(
        True, description="speech over a reply cuts it; off: it is heard out, and what was said is answered then"
    )
    min_duration_s: float = Field(0.0, ge=0, le=10, description="speech that it takes to cut a reply, s")
    min_words: int = Field(0, ge=0, le=20, description="words that it takes, SIMULATED: they come at 150 a minute")
    vad_delay_s: float = Field(
        0.12,
        ge=0,
        le=1,
        description="after its begin speech is found so late, and what is shorter is not: measured of our server's, on "
        "the sounds of workload duplex",
    )
    vad_misses: float = Field(0.0, ge=0, le=1, description="share of stretches of the user's speech that are not found")
    background_heard: float = Field(
        0.9,
        ge=0,
        le=1,
        description="share of what others say that is taken for the user: measured of our server's, 29 of 32 at 15 dB "
        "below",
    )
    noise_heard: float = Field(
        0.3,
        ge=0,
        le=1,
        description="share of noises that are taken for speech: measured of our server's, 8 of 27 at 8 dB below",
    )


class DuplexServerParams(ServerParams, TurnTakingParams):
    """Parameters of a server with an open ear."""
