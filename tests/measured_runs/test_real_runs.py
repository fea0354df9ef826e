"""What the measured runs at hand are: a reader that misread them would say something else."""

from pathlib import Path

import numpy as np
import pytest

from harness.measured_runs.folder import read_runs
from harness.measured_runs.measured_run import MeasuredRun, SummaryRun

LABELS = ["one at a time", "as many as go", "0.759/s", "0.923/s", "1.09/s"]
PREFILL = tuple((label, 40 * i, 40 * i + 40) for i, label in enumerate(LABELS))


@pytest.fixture(scope="module")
def runs(truth: Path) -> dict[str, MeasuredRun | SummaryRun]:
    return {run.name: run for run in read_runs(truth)}


def test_client_and_server_measured_the_same_requests(runs):
    run = runs["jan20-codellama-prefill-1"]
    assert run.client is not None
    for server, client in zip(run.requests, run.client, strict=True):
        assert client is not None
        assert (client.prompt_tokens, client.output_tokens) == (server.prompt_tokens, server.output_tokens)
        assert 0 < client.ttft_s - server.ttft_s < 0.1, "the client's comes after the server's"


def test_the_parts_of_the_train_run_are_found_by_its_arrivals(runs):
    run = runs["jan20-codellama-train-1"]
    labels, counts = zip(*((label, end - first) for label, first, end in run.parts), strict=True)
    assert labels[:2] == ("one at a time", "as many as go")
    rates = [float(label.removesuffix("/s")) for label in labels[2:]]
    assert np.allclose(np.diff(rates), 0.0244, atol=0.0006), "guidellm spaces its rates evenly"
    assert counts == (23, 22, 24, 24, 23, 25, 24, 24, 23, 24, 24, 20), "25 each, without those that were refused"


def test_all_runs_of_the_folder_are_read(runs):
    by_request = {name for name, run in runs.items() if isinstance(run, MeasuredRun)}
    assert by_request == {"jan20-codellama-prefill-1", "jan20-codellama-train-1"}
    experiments, stages = 18, 14  # h100_vllm_0.15.1_summary.csv, and results/stage_*.json under known_loads
    assert sum(isinstance(run, SummaryRun) for run in runs.values()) == experiments + stages


def test_arrivals_alone_find_the_parts_that_the_client_tells(runs, truth, tmp_path):
    for name in ("exp-config.yaml", "profile.yaml", "traces.json"):
        (tmp_path / name).symlink_to(truth / "jan20-codellama-prefill-1" / name)
    (alone,) = read_runs(tmp_path)
    told = runs["jan20-codellama-prefill-1"]
    assert isinstance(alone, MeasuredRun)
    assert alone.parts == told.parts == PREFILL
    assert {(one.prefix, one.prefix_tokens) for one in told.requests} == {("all", 1024)}
