"""Asynchronous scheduling: a request that arrives during a step waits for one step more."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from engines.deployments import load_deployment
from harness.measured_runs.measured_run import Request
from harness.measured_runs.replayed import trace_of
from harness.request_tables.request_table import request_table
from tests.engines.replays import replay
from workloads.errors import UserError

FILE = """\
like: llama_8b_1gpu
title: "one H100"
stages:
  thinker:
    async_scheduling: {ahead}
overheads:
  preprocess_s: {{value: 0.0, source: "none"}}
  hop_s: {{value: 0.0, source: "none"}}
  orchestrator_s: {{value: 0.0, source: "none"}}
"""


@pytest.fixture
def served(tmp_path: Path) -> Callable[..., pd.DataFrame]:
    def served(ahead: bool, *arrivals_s: float) -> pd.DataFrame:
        path = tmp_path / f"{ahead}.yaml"
        path.write_text(FILE.format(ahead=str(ahead).lower()))
        trace, _ = trace_of([Request(at, 64, 200) for at in arrivals_s])
        run = replay("vllm_omni_wo", {}, {"deployment": str(path), "step_noise_cv": 0.0}, {}, trace, 0)
        return request_table(run.events.to_pandas(), pd.DataFrame(trace.columns()))

    return served


def test_an_arrival_during_a_step_waits_for_one_step_more(served: Callable[..., pd.DataFrame]) -> None:
    """The second request comes in the middle of a decode step of the first, which takes 6 ms."""
    first_token = {ahead: served(ahead, 0.0, 0.5)["ttft_s"].iloc[1] for ahead in (False, True)}
    assert 3e-3 < first_token[True] - first_token[False] < 8e-3


def test_an_arrival_at_an_idle_server_waits_for_nothing_more(served: Callable[..., pd.DataFrame]) -> None:
    alone = {ahead: served(ahead, 0.0)["ttft_s"].iloc[0] for ahead in (False, True)}
    assert alone[True] == pytest.approx(alone[False], abs=2e-4)  # the host's part that is hidden


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ("title: x\nmodel: llama_3_1_8b\nstages: {}\n", "gpu"),
        ("like: llama_8b_1gpu\ntitle: x\nstages: {thinker: {max_seqs: 3}}\n", "max_seqs"),
        ("title: [", "YAML"),
    ],
)
def test_a_wrong_deployment_is_named(tmp_path: Path, wrong: str, word: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(wrong)
    with pytest.raises(UserError, match=word):
        load_deployment(str(path))
