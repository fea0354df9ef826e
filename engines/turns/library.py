"""The library of speaking systems: thinker, talker and vocoder, and their choices."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic import Field

from engines.composition import LibraryParams
from engines.core.stage import ENTRY
from engines.deployments import Deployment
from workloads.deferred import Deferred
from workloads.errors import UserError


class SpeakingParams(LibraryParams):
    """Scheduler, KV management, window and routing are separate choices. A named system is a set of defaults."""

    scheduler: str = Field("fcfs", description="scheduling policy of thinker and talker")
    kv: str = Field("lru", description="how the thinker's KV is kept between the turns of a session")
    window: int | None = Field(
        None,
        ge=1,
        le=10_000_000,
        description="latest tokens of its context that the thinker keeps and attends to; null: all",
    )
    sinks: int = Field(0, ge=0, le=10_000_000, description="first tokens that it keeps as well, where a window is set")
    system_tokens: int = Field(
        0,
        ge=0,
        le=10_000_000,
        exclude_if=lambda tokens: not tokens,
        description="tokens of one system prompt in front of every session's context; 0: none",
    )
    routing: str = Field("session_affinity", description="which thinker replica takes a turn")
    # Stored only if they are set, so that points without them keep their ids.
    prefill: int | None = Field(
        None,
        ge=1,
        le=1000,
        exclude_if=lambda replicas: replicas is None,
        description="replicas that compute prompts up to the first token and hand their KV over to others; set decode "
        "too; default: as the deployment says, which is none where all replicas do both",
    )
    decode: int | None = Field(
        None,
        ge=1,
        le=1000,
        exclude_if=lambda replicas: replicas is None,
        description="replicas that go on with requests whose prompts others have computed",
    )
    decode_routing: str = Field(
        "least_load", exclude_if=lambda rule: rule == "least_load", description="which of those takes a request"
    )
    talker_routing: str = Field("least_load", description="which talker replica speaks a reply")


LATER = ("talker", "vocoder")
"""The stages behind the entry."""


class Speaking:
    """`engines.composition.Library` of systems that serve turns."""

    kind = "turns"
    extension_points = ("scheduler", "kv", "routing", "decode_routing", "talker_routing")
    plain = ("window", "sinks", "system_tokens")
    others = MappingProxyType(
        {
            "admission": "turns have no beat whose latency could tell the load; take a system that serves frames.",
            "recycle_at": "a turn is a request of its own, so that there is nothing to renew; leave it out.",
        }
    )
    Params = SpeakingParams
    build = Deferred("engines.turns.build_turns:build")

    def check(self, params: SpeakingParams, chosen: Mapping[str, Any]) -> None:
        if (params.prefill is None) != (params.decode is None):
            given, missing = (
                (f"prefill={params.prefill}", "decode")
                if params.decode is None
                else (f"decode={params.decode}", "prefill")
            )
            raise UserError(f"{given} leaves no replica for the rest of a request; set {missing} too.")
        if params.sinks and params.window is None:
            raise UserError(f"sinks={params.sinks} stay in front of a window, and there is none; set window too.")
        if params.window is not None and chosen["kv"].offloads:
            raise UserError(
                f"window={params.window} and kv={params.kv} cannot go together: what comes back from the host would "
                "lack the blocks that the window has left behind; set kv=lru."
            )

    def check_deployment(self, params: SpeakingParams, deployment: Deployment) -> None:
        """Raise UserError for stages that no reply passes, and for replicas that cannot be divided as the parameters
        ask."""
        for stage in deployment.stages:
            if deployment.role(stage) not in (ENTRY, *LATER):
                raise UserError(
                    f"deployment {deployment.name!r} has a stage {stage!r} behind {deployment.entry!r}, where replies "
                    f"go to {' and '.join(LATER)} alone; set another deployment, or an engine that is made for it."
                )
        for name in ("prefill", "window", "system_tokens") if deployment.speech_only else ():
            if value := getattr(params, name):
                raise UserError(
                    f"{name}={value} is for a stage that reads what was said before, and deployment "
                    f"{deployment.name!r} only speaks; leave it out, or set another deployment."
                )
        if params.prefill is not None and params.decode is not None:
            deployment.divided(deployment.entry, {"prefill": params.prefill, "decode": params.decode})

    def unused(self, params: SpeakingParams, chosen: Mapping[str, Any]) -> dict[str, str]:
        if chosen["kv"].offloads:
            return {}
        return {"host_kv_gb": f"kv={params.kv} takes no KV to host memory; set kv=host"}


SPEAKING = Speaking()
