"""Kinds of workload: what each needs of clients, endpoints, tables and metrics, a file each, imported when needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engines.registry import ENGINES
from engines.server import ServerParams
from harness.kinds.kind import Fronted, Kind, LiveKind, OwnMetrics
from harness.metrics.definitions import HEADLINES, OWN_DEFINITIONS
from workloads.deferred import Deferred
from workloads.errors import UserError
from workloads.plugins import entry_points, load
from workloads.registry import serves

if TYPE_CHECKING:
    from pydantic import BaseModel

    from engines.deployments import Deployment
    from harness.client.client_params import ClientParams
    from workloads.trace import Trace

GROUP = "rehearsal.kinds"
"""Entry points of packages with a kind of their own."""
SERVERS: dict[str, type[ServerParams] | Deferred] = {
    "turns": ServerParams,
    "frames": ServerParams,
    "duplex": Deferred("engines.turn_taking.turn_taking_params:DuplexServerParams"),
}
"""The parameters of a server for each kind of ours: told without loading what the kind needs to measure."""


def _discover() -> dict[str, Kind | Deferred]:
    """Register the kinds of other packages. ValueError where two kinds, or two metrics of such packages, have one
    name."""
    found: dict[str, Kind | Deferred] = {
        "turns": Deferred("harness.kinds.turns:TURNS"),
        "frames": Deferred("harness.kinds.frames:FRAMES"),
        "duplex": Deferred("harness.kinds.duplex:DUPLEX"),
    }
    for kind in (load(entry) for entry in entry_points(group=GROUP)):
        if found.setdefault(kind.name, kind) is not kind:
            raise ValueError(f"two kinds of workload are called {kind.name}")
        if isinstance(kind, OwnMetrics):
            for name, meaning in kind.definitions.items():
                if OWN_DEFINITIONS.setdefault(name, meaning) is not meaning:
                    raise ValueError(f"two metrics are called {name}")
            HEADLINES[kind.name] = tuple(kind.headline)
    return found


_KINDS = _discover()


def named(name: str) -> Any:
    """Return the kind of that name: a `LiveKind` where it can be measured over sockets, as both of ours can."""
    found = _KINDS[name]
    return found.load() if isinstance(found, Deferred) else found


def kind_of(trace: Trace) -> Any:
    """Return the kind of workload of `trace`."""
    return named(serves(trace))


def server_model(name: str) -> type[ServerParams]:
    """Return the model of the server's parameters for the kind of that name."""
    if name in SERVERS:
        own = SERVERS[name]
        return own.load() if isinstance(own, Deferred) else own
    kind = named(name)
    return kind.Server if isinstance(kind, Fronted) else ServerParams


def live_kind(kind: Kind) -> LiveKind:
    """Return the kind as one of endpoints. UserError when it cannot be measured over sockets."""
    if not isinstance(kind, LiveKind):
        able = ", ".join(other for other in _KINDS if isinstance(named(other), LiveKind))
        raise UserError(
            f"{kind.name} has no protocol over sockets; set device virtual, or use a "
            f"workload or an engine of another kind: {able}."
        )
    return kind


def check(
    kind: Kind, engine: str, params: BaseModel, client: ClientParams, deployment: Deployment, trace: Trace
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
