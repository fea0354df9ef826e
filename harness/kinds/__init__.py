"""Kinds of workload: what each needs of clients, tables and metrics, a file each, imported when needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from harness.kinds.kind import Kind, OwnMetrics
from harness.metrics.definitions import HEADLINES, OWN_DEFINITIONS
from harness.metrics.from_packages import package_metrics
from workloads.deferred import Deferred
from workloads.plugins import entry_points, load
from workloads.registry import serves

if TYPE_CHECKING:
    from workloads.trace import Trace

GROUP = "rehearsal.kinds"
"""Entry points of packages with a kind of their own."""


def _discover() -> dict[str, Kind | Deferred]:
    """Register the kinds and metrics of other packages. ValueError where two kinds, or two metrics of such packages,
    have one name."""
    kinds: dict[str, Kind | Deferred] = {
        "turns": Deferred("harness.kinds.turns:TURNS"),
        "frames": Deferred("harness.kinds.frames:FRAMES"),
        "duplex": Deferred("harness.kinds.duplex:DUPLEX"),
    }
    for kind in (load(entry) for entry in entry_points(group=GROUP)):
        if kinds.setdefault(kind.name, kind) is not kind:
            raise ValueError(f"two kinds of workload are called {kind.name}")
        if isinstance(kind, OwnMetrics):
            for name, meaning in kind.definitions.items():
                if OWN_DEFINITIONS.setdefault(name, meaning) is not meaning:
                    raise ValueError(f"two metrics are called {name}")
            HEADLINES[kind.name] = tuple(kind.headline)
    package_metrics()
    return kinds


KINDS = _discover()


def named(name: str) -> Kind:
    """Return the kind of that name."""
    kind = KINDS[name]
    return cast(Kind, kind.load()) if isinstance(kind, Deferred) else kind


def kind_of(trace: Trace) -> Kind:
    """Return the kind of workload of `trace`."""
    return named(serves(trace))
