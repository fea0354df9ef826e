"""Parameters of the clients; the same for every engine that is compared."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class ClientParams(BaseModel):
    """How users connect, listen and give up."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    c: int | None = Field(
        None,
        ge=1,
        description="closed loop: at most c sessions at once; default: open loop, sessions start as scheduled",
    )
    playback: Literal["realtime", "none"] = Field(
        "realtime",
        description="realtime: replies are listened to; none: a turn ends with its last packet, as in "
        "benchmarks that only download",
    )
    ack_s: float = Field(0.1, gt=0, description="seconds between playback acks")
    turn_timeout_s: float = Field(
        120.0,
        gt=0,
        description="a turn fails when it takes this much longer than its speech and full reply last",
    )
    send_lag_limit_s: float = Field(
        0.05,
        gt=0,
        description="on the wall clock a point is invalid, not slow, when a tenth of its turns is sent later than this",
    )
