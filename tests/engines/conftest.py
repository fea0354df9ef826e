from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from engines import composition, registry


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], dict[str, Any]]:
    """Installs a package with systems or components for this test; returns all known systems."""

    def known_with(package: Any) -> dict[str, Any]:
        known = {field: dict(components) for field, components in composition.COMPONENTS.items()}
        monkeypatch.setattr(composition, "COMPONENTS", known)
        entry = SimpleNamespace(name="package", load=lambda: package)
        monkeypatch.setattr(registry, "entry_points", lambda group: [entry] * (group == "rehearsal.systems"))
        return registry.discover()

    return known_with


@pytest.fixture
def vllm_s_own_engine_process() -> Iterator[None]:
    """Undoes the changes of our schedulers to vLLM's engine process."""
    from engines.stock import engine_core  # other tests of the folder need no vLLM

    yield
    engine_core.uninstall()
