"""The library of speaking systems: thinker, talker and vocoder, and what can be chosen of them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rehearsal.engines.deployment import Deployment
from rehearsal.engines.speaking.params import SpeakingParams
from rehearsal.workloads.deferred import Deferred
from rehearsal.workloads.errors import UserError


class Speaking:
    """`engines.composition.Library` of systems that serve turns."""

    kind = "turns"
    seams = ("order", "kv", "routing", "decode_routing", "talker_routing")
    plain = ("window", "sinks", "system_tokens")
    others = MappingProxyType(
        {
            "admission": "turns have no beat whose latency could tell the load; take a system that serves frames.",
            "recycle_at": "a turn is a request of its own, so that there is nothing to renew; leave it out.",
        }
    )
    Params = SpeakingParams
    build = Deferred("rehearsal.engines.speaking.build:build")

    def check(self, params: SpeakingParams, chosen: Mapping[str, Any]) -> None:
        """UserError for what cannot go together."""
        if (params.prefill is None) != (params.decode is None):
            given, missing = (
                (f"prefill={params.prefill}", "decode")
                if params.decode is None
                else (f"decode={params.decode}", "prefill")
            )
            raise UserError(f"{given} leaves no replica for the rest of a request; set {missing} too.")
        if params.sinks and params.window is None:
            raise UserError(
                f"sinks={params.sinks} stay in front of a window, and there is none; set window too."
            )
        if params.window is not None and chosen["kv"].offloads:
            raise UserError(
                f"window={params.window} and kv={params.kv} cannot go together: what comes back from the host would "
                "lack the blocks that the window has left behind; set kv=lru."
            )

    def check_deployment(self, params: SpeakingParams, deployment: Deployment) -> None:
        """UserError for replicas that cannot be divided as the parameters ask."""
        if params.prefill is not None and params.decode is not None:
            deployment.divided(deployment.entry, {"prefill": params.prefill, "decode": params.decode})

    def unused(self, params: SpeakingParams, chosen: Mapping[str, Any]) -> dict[str, str]:
        if chosen["kv"].offloads:
            return {}
        return {"host_kv_gb": f"kv={params.kv} takes no KV to host memory; set kv=host"}


SPEAKING = Speaking()
