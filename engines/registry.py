"""The systems that can be measured, by name, without importing vLLM: those of our folders and of other packages."""

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from rehearsal.engines import components, systems
from rehearsal.engines.composition import Routing, fillings, register
from rehearsal.engines.system import System
from rehearsal.workloads.plugins import entry_points

GROUP = "rehearsal.systems"
"""Entry points of packages with systems or components: each names a module like one of our folders."""

ENDPOINT = "endpoint"
"""The engine of device live: whatever stands behind its url. Nobody here builds it, so it is not among `ENGINES`."""


def _modules() -> Iterator[Any]:
    yield components
    for module in pkgutil.iter_modules(systems.__path__):
        yield import_module(f"{systems.__name__}.{module.name}")
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        yield entry.load()


def _discover() -> dict[str, System]:
    """ValueError where two systems have one name."""
    found: dict[str, System] = {}
    for module in _modules():
        register(*getattr(module, "COMPONENTS", ()))
        for system in getattr(module, "SYSTEMS", ()):
            if found.setdefault(system.name, system) is not system:
                raise ValueError(f"two systems are called {system.name}")
    return found


ENGINES = _discover()

ROUTINGS: Mapping[str, Routing] = fillings("routing")
"""Rules of routing by name, for who makes routers outside of a system."""
