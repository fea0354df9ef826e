"""Parameters of the clients; the same for every engine that is compared."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class ClientParams(BaseModel):
    """Parameters of users: how they connect, listen and give up."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    c: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="closed loop: at most c sessions at once; default: open loop, sessions start as scheduled",
    )
    c_scope: Literal["deployment", "replica"] = Field(
        "deployment",
        description="what c is the limit of: the deployment, or each replica of its talker (of its thinker where "
        "nothing is spoken); the LiveServe paper does not say which",
    )
    c_counts: Literal["session", "request", "reply"] = Field(
        "session",
        description="what c counts: session: whole calls; request: requests in flight, each from before its user "
        "begins until the reply is complete, cut or failed, so that listening and thinking do not count; reply: the "
        "same, but from when the turn is sent, so that speaking does not count either",
    )
    most: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="open loop: at most this number of sessions at once; a session that would be one more comes when "
        "another has ended; default: no limit",
        exclude_if=lambda most: most is None,
    )
    slot_until: Literal["stream", "playback"] = Field(
        "stream",
        description="when a request or a reply gives its slot to the next. stream: when it is complete; "
        "playback: when it has been heard; either way when it is cut or has failed",
        exclude_if=lambda until: until == "stream",
    )
    playback: Literal["realtime", "none"] = Field(
        "realtime",
        description="realtime: replies are listened to; none: a turn ends with its last packet, as in "
        "benchmarks that only download",
    )
    ack_s: float = Field(0.1, gt=0, le=3600, description="seconds between playback acks")
    stop_after_s: float | None = Field(
        None,
        gt=0,
        le=1e7,
        description="no turn begins later than this after the start, and sessions that would come later do not; "
        "default: all that the trace holds",
    )
    turn_timeout_s: float = Field(
        120.0,
        gt=0,
        le=10_000_000,
        description="a turn fails when it takes this much longer than its speech and full reply last",
    )
    turn_send_delay_limit_s: float = Field(
        0.05,
        gt=0,
        le=3600,
        description="on the wall clock a point is invalid, not slow, when a tenth of its turns is sent later than this",
    )

    def begins(self, at_s: float) -> bool:
        """Return whether a turn, or a session, still begins at `at_s` seconds after the start."""
        return self.stop_after_s is None or at_s <= self.stop_after_s

    @model_validator(mode="after")
    def _concurrency_is_limited(self) -> "ClientParams":
        if self.c is not None and self.most is not None:
            raise ValueError("most is the limit of an open loop, and c makes a closed one; leave one of them out")
        for name in ("c_scope", "c_counts"):
            if self.c is None and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name}={getattr(self, name)} says what c limits, and c is not set; set c too")
        if self.slot_until == "playback" and (self.c is None or self.c_counts == "session"):
            raise ValueError(
                "slot_until=playback is for slots of single requests, and a session keeps its own until it ends; set "
                "c and c_counts=request or c_counts=reply too"
            )
        if self.slot_until == "playback" and self.playback == "none":
            raise ValueError(
                "slot_until=playback waits until replies have been heard, and with playback=none nobody hears them; "
                "set playback=realtime"
            )
        return self
