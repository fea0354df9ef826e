"""The systems `rag` and `rag_shortest`: one library of reranker and generator, with two orders."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from engines.builder import Parts, Serving
from engines.composition import Composition, Routing, Scheduler
from engines.core.output import StageOutput
from engines.deployments import Deployment
from my_system.gateway import GENERATOR, RERANKER, Gateway, view
from my_system.order import ShortestQuestion
from my_system.params import RagParams


class RagLibrary:
    """`engines.composition.Library` of systems that answer with what was retrieved."""

    kind = "rag"
    extension_points = ("scheduler", "routing")
    plain = ("passage_tokens", "kept")
    others = MappingProxyType({"kv": "no prompt comes back, so that there is no KV to keep."})
    Params = RagParams

    def check(self, params: RagParams, chosen: Mapping[str, Any]) -> None:
        """All go together."""

    def check_deployment(self, params: RagParams, deployment: Deployment) -> None:
        """Any with both stages will do; the kind looks for these."""

    def unused(self, params: RagParams, chosen: Mapping[str, Any]) -> dict[str, str]:
        return {
            "host_kv_gb": "no KV goes to host memory",
            "first_chunk_frames": "nothing is spoken",
            "abort_at": "nobody interrupts an answer",
        }

    def build(self, parts: Parts, params: RagParams, chosen: Mapping[str, Any]) -> Serving:
        """Both stages with their replicas, behind the gateway."""
        scheduler: Scheduler = chosen["scheduler"]
        routing: Routing = chosen["routing"]
        gateway = Gateway(parts, params)
        for name in (RERANKER, GENERATOR):
            replicas = parts.replicas(replace(parts.stage(name), order=scheduler.vllm))
            gateway.engines[name] = [
                parts.engine(
                    replica,
                    StageOutput(replica, parts.recorder, gateway.on_token, gateway.on_finish, view=view),
                    policy,
                )
                for replica, policy in zip(replicas, scheduler.policies(name, len(replicas)), strict=True)
            ]
            if name == RERANKER:
                gateway.router = routing.router(replicas)
        return parts.serving(gateway, [engine for each in gateway.engines.values() for engine in each])


LIBRARY = RagLibrary()

COMPONENTS = (
    Scheduler(
        "shortest",
        "at the reranker the question with the fewest passages left first",
        policy=lambda stage, params: ShortestQuestion() if stage == RERANKER else None,
        kinds=("rag",),
        refusal="only questions have passages to count.",
    ),
)
SYSTEMS = (
    Composition("rag", "reranker and generator, both first come, first served", LIBRARY),
    Composition(
        "rag_shortest", "rag with the shortest question first at the reranker", LIBRARY, {"scheduler": "shortest"}
    ),
)
