"""What tests leave of vLLM in the process that they share."""

from collections.abc import Iterator

import pytest


@pytest.fixture
def vllm_s_own_engine_process() -> Iterator[None]:
    """Whatever a test's schedulers taught it is undone."""
    from engines.stock import engine_core  # here, so that tests which need no vLLM load none

    yield
    engine_core.uninstall()
