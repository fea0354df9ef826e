"""The base of the parameters of every workload."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class UserParams(BaseModel):
    """Base of all: unknown names are refused, numbers are finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    network_ms: float = Field(5.0, ge=0, le=60_000, description="mean one-way delay between client and server, ms")


class WorkloadParams(UserParams):
    """Parameters of workloads whose users listen to a reply before they go on."""

    p: float = Field(0.0, ge=0, le=1, description="probability that the user interrupts a spoken reply (barge-in)")


class ReplyParams(WorkloadParams):
    """Parameters of workloads whose replies may be spoken or text only."""

    reply: Literal["speech", "text"] = Field("speech", description="whether replies are spoken or text only")

    @model_validator(mode="after")
    def _only_speech_can_be_interrupted(self) -> ReplyParams:
        if self.p > 0 and self.reply == "text":
            raise ValueError(f"p={self.p} interrupts speech but reply=text has none; set reply=speech or p=0")
        return self
