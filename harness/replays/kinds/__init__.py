"""Kinds of workload as systems of ours serve them, a file each, imported when needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from engines.registry import ENGINES
from engines.server import ServerParams
from harness import kinds
from harness.replays.kinds.kind import Fronted, ReplayKind
from workloads.deferred import Deferred
from workloads.errors import UserError
from workloads.registry import serves

if TYPE_CHECKING:
    from pydantic import BaseModel

    from engines.deployments import Deployment
    from harness.client.client_params import ClientParams
    from workloads.trace import Trace

SERVERS: dict[str, type[ServerParams] | Deferred] = {
    "turns": ServerParams,
    "frames": ServerParams,
    "duplex": Deferred("engines.turn_taking.turn_taking_params:DuplexServerParams"),
}
"""The parameters of a server for each kind of ours, without loading what the kind needs to measure."""
_KINDS = {
    "turns": Deferred("harness.replays.kinds.turns:TURNS"),
    "frames": Deferred("harness.replays.kinds.frames:FRAMES"),
    "duplex": Deferred("harness.replays.kinds.duplex:DUPLEX"),
}


def named(name: str) -> ReplayKind[Any]:
    """Return the kind of that name."""
    return cast(ReplayKind[Any], _KINDS[name].load() if name in _KINDS else kinds.named(name))


def kind_of(trace: Trace) -> ReplayKind[Any]:
    """Return the kind of workload of `trace`."""
    return named(serves(trace))


def server_model(name: str) -> type[ServerParams]:
    """Return the model of the server's parameters for the kind of that name."""
    if name in SERVERS:
        server = SERVERS[name]
        return server.load() if isinstance(server, Deferred) else server
    kind = named(name)
    return kind.Server if isinstance(kind, Fronted) else ServerParams


def check(
    kind: ReplayKind[Any],
    engine: str,
    params: BaseModel,
    client: ClientParams,
    deployment: Deployment,
    trace: Trace,
) -> None:
    """Raise UserError when the engine, with `params`, serves another kind of workload, or `trace` cannot be served
    so."""
    system = ENGINES[engine]
    wanted = kind.served_by if isinstance(kind, Fronted) else kind.name
    if system.kind != wanted:
        able = ", ".join(name for name, other in ENGINES.items() if other.kind == wanted)
        raise UserError(
            f"engine {engine!r} serves {system.kind}, and workload {trace.header.generator!r} is made of {kind.name}; "
            f"set engine to one of: {able}, or use another workload."
        )
    system.check(params)
    system.check_deployment(params, deployment)
    kind.check(params, client, deployment, trace)
