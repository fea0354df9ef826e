"""Kinds of workload: what each needs of clients, endpoints, tables and metrics, a file each."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from engines.registry import ENGINES
from engines.server import ServerParams
from harness.kinds.frames import FRAMES
from harness.kinds.kind import Kind, LiveKind, OwnMetrics
from harness.kinds.turns import TURNS
from harness.metrics.definitions import HEADLINES, OWN_DEFINITIONS
from workloads.errors import UserError
from workloads.registry import serves
from workloads.trace import Trace

GROUP = "rehearsal.kinds"
"""Entry points of packages with a kind of their own."""


def _discover() -> dict[str, Kind]:
    """ValueError where two kinds, or two metrics of such packages, have one name."""
    found: dict[str, Kind] = {}
    for kind in [TURNS, FRAMES, *(entry.load() for entry in entry_points(group=GROUP))]:
        if found.setdefault(kind.name, kind) is not kind:
            raise ValueError(f"two kinds of workload are called {kind.name}")
        if isinstance(kind, OwnMetrics):
            for name, meaning in kind.definitions.items():
                if OWN_DEFINITIONS.setdefault(name, meaning) is not meaning:
                    raise ValueError(f"two metrics are called {name}")
            HEADLINES[kind.name] = tuple(kind.headline)
    return found


KINDS = _discover()


def kind_of(trace: Trace) -> Any:
    """What `trace` is: a `LiveKind` where it can be measured over sockets, as both of ours can."""
    return KINDS[serves(trace)]


def live_kind(name: str) -> LiveKind:
    """The kind of that name; UserError when it cannot be measured over sockets."""
    kind = KINDS[name]
    if not isinstance(kind, LiveKind):
        able = ", ".join(other.name for other in KINDS.values() if isinstance(other, LiveKind))
        raise UserError(
            f"{name} cannot be served over sockets, for which there is no protocol; set device virtual, or take a "
            f"workload or an engine of another kind: {able}."
        )
    return kind


def check(
    engine: str,
    engine_params: Mapping[str, Any],
    client_params: Mapping[str, Any],
    server: ServerParams,
    trace: Trace,
) -> None:
    """UserError when the engine serves another kind of workload, or `trace` cannot be served so."""
    kind, system = kind_of(trace), ENGINES[engine]
    if system.kind != kind.name:
        able = ", ".join(name for name, other in ENGINES.items() if other.kind == kind.name)
        raise UserError(
            f"engine {engine!r} serves {system.kind}, and workload {trace.header.generator!r} is made of {kind.name}; "
            f"set engine to one of: {able}, or take another workload."
        )
    params = system.model(engine_params).model_validate(engine_params)
    system.check(params)
    kind.check(params, client_params, server, trace)
