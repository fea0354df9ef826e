"""Kinds of workload as live runs call servers with them, a file each, imported when needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness import kinds
from harness.live.kinds.kind import LiveKind
from workloads.deferred import Deferred
from workloads.errors import UserError
from workloads.registry import serves

if TYPE_CHECKING:
    from workloads.trace import Trace

_KINDS = {
    "turns": Deferred("harness.live.kinds.turns:TURNS"),
    "frames": Deferred("harness.live.kinds.frames:FRAMES"),
    "duplex": Deferred("harness.live.kinds.duplex:DUPLEX"),
}


def named(name: str) -> LiveKind:
    """Return the kind of that name. UserError when it cannot be measured over sockets."""
    kind = _KINDS[name].load() if name in _KINDS else kinds.named(name)
    if not isinstance(kind, LiveKind):
        able = ", ".join(other for other in kinds.KINDS if other in _KINDS or isinstance(kinds.named(other), LiveKind))
        raise UserError(
            f"{name} has no protocol over sockets; set device virtual, or use a workload or an engine of another kind: "
            f"{able}."
        )
    return kind


def kind_of(trace: Trace) -> LiveKind:
    """Return the kind of workload of `trace`. UserError when it cannot be measured over sockets."""
    return named(serves(trace))
