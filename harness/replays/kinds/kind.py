"""The interface of a kind of workload that is replayed: what a modelled server and its users need of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from harness.kinds.kind import Kind

if TYPE_CHECKING:
    from engines.deployments import Deployment
    from engines.server import ServerParams
    from harness.client.client_params import ClientParams
    from workloads.trace import Trace

P_contra = TypeVar("P_contra", contravariant=True)
"""Parameters of the systems that serve it."""


class ReplayKind(Kind, Protocol[P_contra]):
    """A kind of workload that a system of ours serves."""

    def check(self, params: P_contra, client: ClientParams, deployment: Deployment, trace: Trace) -> None:
        """Raise UserError when a system with `params` cannot serve `trace`, or its users cannot act so."""
        ...

    def replicas(self, deployment: Deployment, trace: Trace) -> int:
        """Return the number of replicas that can work for `trace` at once."""
        ...

    def timing(self, params: P_contra, client: ClientParams, deployment: Deployment, trace: Trace) -> Any:
        """Return the `Timing` of a point whose system has `params`."""
        ...


@runtime_checkable
class Fronted(ReplayKind[P_contra], Protocol[P_contra]):
    """A kind that puts a gateway of its own in front of a system of another kind, `served_by`. `Server`: the parameters
    of the server, including those of the gateway."""

    served_by: str
    Server: type[ServerParams]

    def front(self, gateway: Any, server: ServerParams, seed: int) -> Any:
        """Return a gateway for `play`, in front of the system's; `server`: a `Server`."""
        ...
