"""Kinds of workload as systems of ours serve them, a file each, imported when needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from engines.server import ServerParams
from harness import kinds
from harness.replays.kinds.kind import Fronted, ReplayKind
from workloads.deferred import Deferred
from workloads.registry import serves

if TYPE_CHECKING:
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
