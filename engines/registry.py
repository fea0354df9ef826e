"""The systems that can be measured, by name, without importing vLLM: those of our folders and of other packages."""

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from engines import systems
from engines.composition import (
    BY_PROMPT,
    AdmissionControl,
    KvManagement,
    Routing,
    Scheduler,
    System,
    fillings,
    register,
)
from engines.core.routing_rules import Dynamo, LeastLoad, PrefixMatch, RoundRobin, SessionAffinity
from workloads.plugins import entry_points, load

COMPONENTS = (
    Scheduler("fcfs", "vLLM's own order: first come, first served"),
    Scheduler(
        "priority",
        "vLLM's own order by priority, as the trace gives it; of equals first come, first served",
        vllm="priority",
    ),
    KvManagement("lru", "vLLM's prefix cache, least recently used out first"),
    KvManagement(
        "host",
        "vLLM's offload of KV to host memory, least recently used out first on both sides",
        offloads=True,
        kinds=("turns",),
        refusal="a call keeps its KV until it ends, so that nothing comes back.",
    ),
    AdmissionControl("off", "everybody is let in"),
    Routing("session_affinity", "a session stays with one replica: its number says which", rule=SessionAffinity),
    Routing("round_robin", "each request to the next replica", rule=RoundRobin),
    Routing("least_load", "where the fewest requests are under way", rule=LeastLoad),
    Routing("prefix_match", "where most of the prompt is in the cache", rule=PrefixMatch, **BY_PROMPT),
    Routing("dynamo", "NVIDIA Dynamo's KV router at temperature 0", rule=Dynamo, **BY_PROMPT),
)
"""Components that belong to no system: vLLM's own, and the usual rules of routing."""

GROUP = "rehearsal.systems"
"""Entry points of packages with systems or components: each names a module like one of our folders."""

ENDPOINT = "endpoint"
"""The engine of device live: the server at its url. Rehearsal does not build it, so it is not among `ENGINES`."""


def _modules() -> Iterator[Any]:
    for module in pkgutil.iter_modules(systems.__path__):
        yield import_module(f"{systems.__name__}.{module.name}")
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        yield load(entry)


def discover() -> dict[str, System[Any]]:
    """Return all systems by name. ValueError if two systems have one name."""
    by_name: dict[str, System[Any]] = {}
    register(*COMPONENTS)
    for module in _modules():
        register(*getattr(module, "COMPONENTS", ()))
        for system in getattr(module, "SYSTEMS", ()):
            if by_name.setdefault(system.name, system) is not system:
                raise ValueError(f"two systems are called {system.name}")
    return by_name


ENGINES = discover()

ROUTINGS: Mapping[str, Routing] = fillings("routing")
"""Rules of routing by name, for makers of routers outside of a system."""


def beside_baselines() -> dict[str, list[str]]:
    """Return every system with the baselines that it is measured against: system -> baselines, each only where it comes
    first: at a system of ours, or at the first package that names it. A system that names baselines is no baseline.

    In the order of the kinds that they serve, turns, frames and others, and then of their names.
    """
    groups: dict[str, list[str]] = {}
    listed: set[str] = set()
    for name, system in ENGINES.items():
        here = [each for each in system.against if each in ENGINES and not ENGINES[each].against]
        groups[name] = [each for each in here if each not in listed]
        listed.update(here)
    kinds = ["turns", "frames", *sorted({system.kind for system in ENGINES.values()} - {"turns", "frames"})]
    order = sorted(groups.keys() - listed, key=lambda name: (kinds.index(ENGINES[name].kind), name))
    return {name: groups[name] for name in order}
