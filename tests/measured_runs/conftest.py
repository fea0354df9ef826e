"""The measured runs where they stand beside the repository, and files as the tools write them, made small."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).parents[3] / "shared" / "data" / "gpu_truth"


@pytest.fixture(scope="session")
def truth() -> Path:
    """The folder of measured runs; skips the test where it is not at hand."""
    if not SHARED.exists():
        pytest.skip("figures of real data that is not at hand: shared/data/gpu_truth")
    return SHARED


def span(start_s: float, prompt: int, output: int, ttft: float, e2e: float, name: str = "") -> dict[str, Any]:
    """As vLLM exports a request."""
    values = {
        "gen_ai.latency.time_to_first_token": {"doubleValue": ttft},
        "gen_ai.latency.e2e": {"doubleValue": e2e},
        "gen_ai.latency.time_in_queue": {"doubleValue": 0.001},
        "gen_ai.usage.prompt_tokens": {"intValue": str(prompt)},
        "gen_ai.usage.completion_tokens": {"intValue": output},
        "gen_ai.request.id": {"stringValue": name},
    }
    attributes = [{"key": key, "value": value} for key, value in values.items()]
    return {"name": "llm_request", "startTimeUnixNano": str(round(start_s * 1e9)), "attributes": attributes}


def line(*spans: dict[str, Any]) -> str:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [one]}]} for one in spans]})


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Write files of a run, name (`__` for `/`) to text or JSON, and give its folder."""

    def write(**files: Any) -> Path:
        made = tmp_path / "run"
        for name, content in files.items():
            path = made / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return made

    return write
