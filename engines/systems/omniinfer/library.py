"""The library of systems with separate instances for prompts and for decodes."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from engines.composition import Routing, fillings
from engines.core.router import ChoosingRouter
from engines.deployments import Deployment
from engines.turns.library import Speaking, SpeakingParams
from workloads.deferred import Deferred
from workloads.errors import UserError


class DividedParams(SpeakingParams):
    """Adds the choices of experts and attention on decode replicas."""

    placement: str = Field("balanced", description="where the experts of a group of dies stand")
    attention: str = Field("full", description="what decode replicas keep of KV, and attend to")
    deferred: bool = Field(
        False,
        exclude_if=lambda held: not held,
        description="hold requests in front of the prefill replicas, and sort them anew, until the one that routing "
        "says is about to begin a batch (OmniProxy)",
    )


class Divided(Speaking):
    """Implements `engines.composition.Library`."""

    extension_points = (*Speaking.extension_points, "placement", "attention")
    plain = ("prefill", "decode", "deferred")
    Params = DividedParams
    build = Deferred("engines.systems.omniinfer.proxy.deferral:build")

    def check(self, params: DividedParams, chosen: Mapping[str, Any]) -> None:
        super().check(params, chosen)
        if params.deferred and not _chooses(chosen["routing"]):
            able = ", ".join(name for name, routing in fillings("routing").items() if _chooses(routing))
            raise UserError(
                f"deferred=true asks where a request would go now, and routing={params.routing} can only send it "
                f"there; set routing to one of: {able}."
            )

    def check_deployment(self, params: DividedParams, deployment: Deployment) -> None:
        super().check_deployment(params, deployment)
        if params.deferred and params.prefill is None and not deployment.stages[deployment.entry].roles:
            raise UserError(
                f"deferred=true waits for batches of prefill replicas, and those of deployment {deployment.name!r} do "
                "both; set prefill and decode."
            )

    def unused(self, params: DividedParams, chosen: Mapping[str, Any]) -> dict[str, str]:
        return {"host_kv_gb": "replicas that hand KV over keep none in host memory; leave it out"}


def _chooses(routing: Routing) -> bool:
    """Return True if the rule can name a request's replica ahead."""
    return isinstance(routing.rule, type) and issubclass(routing.rule, ChoosingRouter)


DIVIDED = Divided()
"""Parameters of every system of prefill and decode replicas."""
