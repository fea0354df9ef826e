"""The systems that can be measured, by name, without importing vLLM: those of our folders and of other packages."""

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from engines import components, systems
from engines.composition import Composition, register
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


_ORIGINS: dict[tuple[str, str], str] = {}
"""The module that brings a system or, by seam and name, a component."""


def _discover() -> dict[str, System]:
    """ValueError where two systems have one name."""
    found: dict[str, System] = {}
    for module in _modules():
        brought = getattr(module, "COMPONENTS", ())
        register(*brought)
        _ORIGINS.update({(each.seam, each.name): module.__name__ for each in brought})
        for system in getattr(module, "SYSTEMS", ()):
            _ORIGINS["system", system.name] = module.__name__
            if found.setdefault(system.name, system) is not system:
                raise ValueError(f"two systems are called {system.name}")
    return found


ENGINES = _discover()


def modules_of(engine: str, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The modules that bring a system and what it is composed of under these settings."""
    system = ENGINES[engine]
    chosen = system.chosen({**system.defaults, **settings}) if isinstance(system, Composition) else {}
    names = [("system", engine), *((seam, component.name) for seam, component in chosen.items())]
    return tuple(dict.fromkeys(_ORIGINS[name] for name in names))
