"""The first stage may have any name: systems, metrics and policies go by its role."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from engines.core.stage import ENTRY
from engines.models import yaml_files
from engines.registry import ENGINES
from engines.server import ServerParams, resolve
from engines.stock.arguments import StockParams
from harness.client.client_params import ClientParams
from harness.replays.kinds import kind_of
from tests.engines import replays
from workloads.errors import UserError
from workloads.registry import make_trace
from workloads.trace import Trace

NAME = "llm"
QUIET = {"step_noise_cv": 0.0}  # noise is drawn from a stream with the stage's name


@pytest.fixture
def renamed(tmp_path: Path) -> Any:
    """A shipped deployment in which the first stage is called `llm`."""

    def renamed(deployment: str, model: str) -> dict[str, Any]:
        for kind, name in (("models", model), ("deployments", deployment)):
            text = yaml_files(kind)[name].read_text().replace("  thinker:", f"  {NAME}:")
            own = text.replace(f"model: {model}", f"model: {tmp_path / 'models.yaml'}")
            (tmp_path / f"{kind}.yaml").write_text(own)
        return {"deployment": str(tmp_path / "deployments.yaml")} | QUIET

    return renamed


def measured(engine: str, server: dict[str, Any], trace: Trace) -> tuple[pd.DataFrame, ...]:
    """Events, steps, requests and metrics."""
    client, deployment = ClientParams.model_validate({}), resolve(ServerParams.of(server))
    kind_of(trace).check(ENGINES[engine].read({}), client, deployment, trace)
    done = replays.replay(engine, {}, server, {}, trace, seed=7)
    requests, metrics = replays.measured(trace, done, engine, server)
    numbers = {name: (metric.value, metric.n, metric.missing) for name, metric in metrics.items()}
    return done.events.to_pandas(), done.steps.to_pandas(), requests, pd.DataFrame(numbers, ["value", "n", "missing"])


def assert_alike(own: tuple[pd.DataFrame, ...], usual: tuple[pd.DataFrame, ...]) -> None:
    for table, before in zip(own, usual, strict=True):
        if "stage" in before:
            before = before.assign(stage=before["stage"].astype(str).replace("thinker", NAME))
            table = table.assign(stage=table["stage"].astype(str))
        pd.testing.assert_frame_equal(table, before, check_exact=True)


@pytest.mark.parametrize("engine", ["vllm_omni_wo", "conserve", "distserve_p"])
def test_text_runs_do_not_depend_on_the_name_of_the_first_stage(engine: str, renamed: Any) -> None:
    size = {"requests": 12, "rate": 4.0, "documents": 4, "max_input_tokens": 3000, "max_output_tokens": 30}
    trace = make_trace("co_serving", {**size, "ttft_deadline_s": 0.2, "tbt_deadline_s": 0.05}, 3)
    usual = measured(engine, {"deployment": "llama_8b_1gpu"} | QUIET, trace)
    own = measured(engine, renamed("llama_8b_1gpu", "llama_3_1_8b"), trace)
    assert_alike(own, usual)
    assert not own[2]["generated_entry"].isna().to_numpy().any()
    assert float(own[3]["queueing_entry_p50"].to_numpy()[0]) >= 0


def test_calls_do_not_depend_on_the_name_of_the_first_stage(renamed: Any) -> None:
    trace = make_trace("metronome", {"sessions": 2, "duration_s": 6.0}, 0)
    usual = measured("metronome", {"deployment": "minicpm_o_pro6000"} | QUIET, trace)
    own = measured("metronome", renamed("minicpm_o_pro6000", "minicpm_o_4_5"), trace)
    assert_alike(own[2:], usual[2:])


def test_stock_vllm_serves_the_first_stage_or_the_named_one(renamed: Any) -> None:
    server = renamed("llama_8b_1gpu", "llama_3_1_8b")["deployment"]
    told = StockParams.of({"rehearsal": {"deployment": server}})
    assert (told.limits.name, told.role) == (NAME, ENTRY)
    talker = StockParams.of({"rehearsal": {"stage": "talker"}})
    assert (talker.limits.name, talker.role) == ("talker", "talker")
    with pytest.raises(UserError, match=rf"stage 'talker' is none of .*; choose from: {NAME}\."):
        StockParams.of({"rehearsal": {"deployment": server, "stage": "talker"}})
