"""Tests with vLLM-Omni itself: `make test-omni`, in the environment of `make omni`; elsewhere nothing is collected."""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from engines.stock.omni.omni_params import OmniParams
from harness.serving.omni_server import OmniServer
from tests.builders import free_ports

collect_ignore_glob = [] if find_spec("vllm_omni") is not None else ["test_*.py"]


@pytest.fixture(scope="session")
def liveserve() -> Iterator[OmniServer]:
    """Its API server under LiveServe's policy."""
    with OmniServer(OmniParams.model_validate({"engine": "liveserve"}), free_ports(1)[0]) as server:
        yield server
