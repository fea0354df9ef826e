"""The library of systems for calls, and their choices."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from engines.deployments import Deployment
from engines.frames.call_params import CallParams
from workloads.deferred import Deferred
from workloads.errors import UserError


class Calls:
    """`engines.composition.Library` of systems that serve frames."""

    kind = "frames"
    extension_points = ("scheduler", "admission", "routing")
    plain = ("window", "sinks", "recycle_at")
    others = MappingProxyType(
        {
            "kv": "a call keeps its KV from first frame to last, so that there is none between requests to manage.",
            "talker_routing": "calls are served by the thinker alone; set routing.",
        }
    )
    Params = CallParams
    build = Deferred("engines.frames.build_frames:build")

    def check(self, params: CallParams, chosen: Mapping[str, Any]) -> None:
        if params.sinks and params.window is None:
            raise UserError(f"sinks={params.sinks} stay in front of a window, and there is none; set window too.")
        if chosen["scheduler"].vllm != "fcfs" or (params.preempts_waiting and chosen["scheduler"].name != "fcfs"):
            what = "preempts_waiting=true" if params.preempts_waiting else "calls"
            raise UserError(
                f"scheduler={params.scheduler} and {what} cannot go together: a call keeps its place in vLLM's queue "
                "between its frames; set scheduler=fcfs or one with a policy of its own."
            )

    def check_deployment(self, params: CallParams, deployment: Deployment) -> None:
        """Raise UserError for a deployment without a thinker."""
        if deployment.speech_only:
            raise UserError(
                f"deployment {deployment.name!r} only speaks, and calls are answered in text; set another deployment."
            )

    def unused(self, params: CallParams, chosen: Mapping[str, Any]) -> dict[str, str]:
        return {
            "host_kv_gb": "a call's KV never goes to host memory",
            "charge_eviction": "a call's KV is not evicted",
            "first_chunk_frames": "calls are answered in text tokens, which no vocoder turns into packets",
            "abort_at": "a call is not interrupted, it goes on",
        }


CALLS = Calls()
