"""Packages that bring systems, and what tests leave of vLLM in the process that they share."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from engines import composition, registry


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], dict[str, Any]]:
    """Installs a package that brings systems or components, for this test; gives the systems that are known then."""

    def known_with(package: Any) -> dict[str, Any]:
        known = {field: dict(components) for field, components in composition.COMPONENTS.items()}
        monkeypatch.setattr(composition, "COMPONENTS", known)
        entry = SimpleNamespace(name="package", load=lambda: package)
        monkeypatch.setattr(registry, "entry_points", lambda group: [entry] * (group == "rehearsal.systems"))
        return registry.discover()

    return known_with


@pytest.fixture
def vllm_s_own_engine_process() -> Iterator[None]:
    """Whatever a test's schedulers taught it is undone."""
    from engines.stock import engine_core  # here, so that tests which need no vLLM load none

    yield
    engine_core.uninstall()
