"""The table of simulators on the same experiments."""

import pytest

from harness.measured_runs.folder import read_runs
from harness.measured_runs.measured_run import SummaryRun
from tools.peers.accuracy import EXPERIMENTS, columns, errors, in_sample, ours, recorded, table


def test_the_experiments_are_a_summary_that_can_be_replayed() -> None:
    runs = read_runs(EXPERIMENTS)
    assert {run.name.partition("-")[0] for run in runs} >= recorded().keys()
    assert [run for run in runs if not isinstance(run, SummaryRun)] == []
    assert isinstance(runs[0], SummaryRun) and runs[0].measured["ttft_mean"] == pytest.approx(0.0689, abs=1e-4)
    for run in runs:
        assert in_sample(run.name.partition("-")[0]) == ("Llama-3.1-8B" in run.name)


def test_the_first_300_requests_of_experiment_9_have_seven_times_the_ttft_of_its_whole_run() -> None:
    measured = columns()
    whole_run_ms = measured["measured_ms"]["9"]["ttft_mean"]
    first_300_ms = measured["first_300_ms"]["9"]["ttft_mean"]
    assert (whole_run_ms, first_300_ms) == (68.9367, 492.194)  # the line "9, ttft_mean" of inference_sim.csv
    assert first_300_ms > 7 * whole_run_ms


def test_errors_are_means_over_the_experiments_of_both() -> None:
    measured = {"a": {"ttft_mean": 100.0, "e2e_mean": 200.0, "itl": 100.0}}
    measured["b"] = {"ttft_mean": 50.0, "e2e_mean": 100.0, "itl": 50.0}
    predicted = {"a": {"ttft_mean": 110.0, "e2e_mean": 210.0, "itl": 100.0}, "c": {"ttft_mean": 9.0}}
    predicted["b"] = {"ttft_mean": 35.0, "e2e_mean": 100.0, "itl": 65.0}
    count, (ttft, ttft_p90, _, itl, e2e, *_) = errors(predicted, measured)
    assert (count, ttft_p90) == (2, None)
    assert (ttft, itl, e2e) == (pytest.approx(0.2), pytest.approx(0.15), pytest.approx(0.025))


def test_a_report_becomes_two_lines_and_fitted_experiments_come_last() -> None:
    latencies = {name: {"predicted": {"mean": 0.07, "p90": 0.08, "p99": 0.09}} for name in ("ttft", "itl", "e2e")}
    rows = [{"run": f"{name}-x", "latencies": latencies} for name in ("16-Llama-3.1-8B", "9-Mixtral")]
    lines = list(table(ours({"rows": rows})))
    named = [line.split(" | ")[0] for line in lines[2:]]
    assert named[0] == "| **Rehearsal: Mixtral-8x7B-v0.1**" and "first 300" in named[6]
    assert lines[2].split(" | ")[1:3] == ["1", "1.5 %"]
