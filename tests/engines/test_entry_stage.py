"""The first stage may have any name: systems, metrics and policies go by its role."""

from pathlib import Path
from typing import Any

import pytest

from engines.core.stage import ENTRY
from engines.models import yaml_files
from engines.stock.arguments import StockParams
from tests.engines import replays
from workloads.errors import UserError
from workloads.registry import make_trace

SERVER = {"deployment": "llama_8b_1gpu", "step_noise_cv": 0.0}  # noise is drawn from a stream with the stage's name


@pytest.fixture
def renamed(tmp_path: Path) -> dict[str, Any]:
    """The same server with its first stage called `llm`."""
    for kind, name in (("models", "llama_3_1_8b"), ("deployments", "llama_8b_1gpu")):
        text = yaml_files(kind)[name].read_text().replace("  thinker:", "  llm:")
        own = text.replace("model: llama_3_1_8b", f"model: {tmp_path / 'models.yaml'}")
        (tmp_path / f"{kind}.yaml").write_text(own)
    return SERVER | {"deployment": str(tmp_path / "deployments.yaml")}


@pytest.mark.parametrize("engine", ["vllm_omni_wo", "conserve", "non_preemptive", "chunked", "distserve_p"])
def test_metrics_do_not_depend_on_the_name_of_the_first_stage(engine: str, renamed: dict[str, Any]) -> None:
    size = {"requests": 12, "rate": 4.0, "documents": 4, "max_input_tokens": 3000, "max_output_tokens": 30}
    trace = make_trace("co_serving", {**size, "ttft_deadline_s": 0.2, "tbt_deadline_s": 0.05}, 3)
    usual, own = (
        replays.measured(trace, replays.replay(engine, {}, server, {}, trace, seed=7), engine, server)[1]
        for server in (SERVER, renamed)
    )
    assert own == usual
    assert own["queueing_entry_p50"].n > 0


def test_stock_vllm_serves_the_first_stage_or_the_named_one(renamed: dict[str, Any]) -> None:
    deployment = renamed["deployment"]
    first = StockParams.of({"rehearsal": {"deployment": deployment}})
    assert (first.limits.name, first.role) == ("llm", ENTRY)
    talker = StockParams.of({"rehearsal": {"stage": "talker"}})
    assert (talker.limits.name, talker.role) == ("talker", "talker")
    with pytest.raises(UserError, match=r"stage 'talker' is none of .*; choose from: llm\."):
        StockParams.of({"rehearsal": {"deployment": deployment, "stage": "talker"}})
