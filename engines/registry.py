"""The systems that can be measured, by name, without importing vLLM: those of our folders and of other packages."""

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from engines import components, systems
from engines.composition import register
from engines.system import System

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


def _discover() -> tuple[dict[str, System], dict[str, str]]:
    """ValueError where two systems have one name."""
    found: dict[str, System] = {}
    homes: dict[str, str] = {}
    for module in _modules():
        components = getattr(module, "COMPONENTS", ())
        register(*components)
        homes |= {f"{component.seam}={component.name}": module.__name__ for component in components}
        for system in getattr(module, "SYSTEMS", ()):
            if found.setdefault(system.name, system) is not system:
                raise ValueError(f"two systems are called {system.name}")
            homes[system.name] = module.__name__
    return found, homes


ENGINES, HOMES = _discover()
"""Systems by name; and the modules that bring them and the components, by `liveserve` and `order=liveserve`."""
