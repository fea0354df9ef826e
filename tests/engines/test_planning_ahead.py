"""A server that plans a step while the one before runs: what comes meanwhile waits for one step more, and no longer."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from engines.deployments import load_deployment
from engines.server import ServerParams, resolve
from harness.measured_runs.measured_run import Request
from harness.measured_runs.replayed import trace_of
from harness.request_tables.request_table import request_table
from tests.engines.replays import replay
from workloads.errors import UserError

FILE = """\
title: "one H100"
model: llama_3_1_8b
gpu: h100
stages:
  thinker:
    max_tokens: 4096
    max_model_len: 4096
    gpus: [0]
    memory_share: 0.9
    max_num_seqs: 64
    max_num_batched_tokens: 2048
    prefix_caching: true
    async_scheduling: {ahead}
overheads:
  preprocess_s: {{value: 0.0, source: "none"}}
  hop_s: {{value: 0.0, source: "none"}}
  orchestrator_s: {{value: 0.0, source: "none"}}
"""


@pytest.fixture
def served(tmp_path: Path) -> Callable[..., pd.DataFrame]:
    def served(ahead: bool, *arrivals_s: float, tokens: int = 200) -> pd.DataFrame:
        path = tmp_path / f"{ahead}.yaml"
        path.write_text(FILE.format(ahead=str(ahead).lower()))
        requests = [Request(at, 64, tokens) for at in arrivals_s]
        trace, _ = trace_of(requests)
        run = replay("vllm_omni_wo", {}, {"deployment": str(path), "step_noise_cv": 0.0}, {}, trace, 0)
        return request_table(run.events.to_pandas(), pd.DataFrame(trace.columns()))

    return served


def test_who_comes_during_a_step_waits_for_one_more_than_without(served: Callable[..., pd.DataFrame]) -> None:
    """The second request comes in the middle of a decode step of the first, which takes 6 ms."""
    first_token = {ahead: served(ahead, 0.0, 0.5)["ttft_s"].iloc[1] for ahead in (False, True)}
    assert 3e-3 < first_token[True] - first_token[False] < 8e-3


def test_who_comes_to_an_idle_server_waits_for_nothing(served: Callable[..., pd.DataFrame]) -> None:
    alone = {ahead: served(ahead, 0.0)["ttft_s"].iloc[0] for ahead in (False, True)}
    assert alone[True] == pytest.approx(alone[False], abs=2e-4)  # the host's part that is hidden


def test_all_are_served_and_none_is_lost_on_the_way(served: Callable[..., pd.DataFrame]) -> None:
    arrivals = np.cumsum(np.random.default_rng(0).exponential(0.01, 60))
    table = served(True, *arrivals, tokens=20)
    assert (table["status"] == "completed").all() and len(table) == 60


def test_a_deployment_of_ones_own_is_a_file_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(FILE.format(ahead="true"))
    assert resolve(ServerParams(deployment=str(path))).stages["thinker"].async_scheduling
    for wrong, word in (
        (FILE.replace("gpu: h100\n", ""), "gpu"),
        (FILE.replace("max_num_seqs", "max_seqs"), "max_seqs"),
        ("title: [", "YAML"),
    ):
        broken = tmp_path / f"{word}.yaml"
        broken.write_text(wrong.format(ahead="true") if "{ahead}" in wrong else wrong)
        with pytest.raises(UserError, match=word):
            load_deployment(str(broken))
