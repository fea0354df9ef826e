"""Other simulators get the requests of our load, and are compared on the same experiments."""

import csv
import json
import sys
from pathlib import Path

import pytest

from harness.measured_runs.folder import read_runs
from harness.measured_runs.measured_run import SummaryRun
from tests.perf.pairs import LOADS
from tools.peers.__main__ import TEXT, main, write_text, write_vidur
from tools.peers.accuracy import EXPERIMENTS, columns, errors, in_sample, ours, recorded, table
from workloads.registry import make_trace


def test_text_is_the_load_of_our_own_measurement(tmp_path: Path) -> None:
    _, workload, settings = LOADS["text"]
    assert (workload, {**settings, "deployment": None}) == ("poisson", {**TEXT, "deployment": None})
    write_text(tmp_path / "text.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "text.jsonl").read_text().splitlines()]
    turns = [turn for session in make_trace("poisson", TEXT, 0).sessions for turn in session.turns]
    lengths = sorted((row["input_length"], row["output_length"]) for row in rows)
    assert lengths == sorted((turn.input_tokens, turn.output_tokens) for turn in turns)
    assert [row["timestamp"] for row in rows] == sorted(row["timestamp"] for row in rows)


def test_vidur_gets_times_and_lengths(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n'
        '{"timestamp": 1500, "input_length": 7, "output_length": 2, "hash_ids": [2]}\n'
    )
    write_vidur(tmp_path / "a.jsonl", tmp_path / "a.csv")
    with (tmp_path / "a.csv").open() as file:
        rows = [[*row.values()] for row in csv.DictReader(file)]
    assert rows == [["replay", "0.0", "600", "5"], ["replay", "1.5", "7", "2"]]


def test_a_missing_peer_has_a_row(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("REHEARSAL_PEERS", sys.executable)  # our own environment, which has neither peer
    assert main([]) == 0
    _head, _rule, *rows = capsys.readouterr().out.splitlines()
    installed = [row.split(": pip")[0] for row in rows]
    assert installed == ["| Dynamo replay | is not installed", "| Vidur | is not installed"]


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
