"""Runs of ours in llm-d's and aiperf's formats."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from reports.live.export import export_run
from reports.runs.measured import Measured, load_run
from tests.reports.lived import live, serve_live
from tests.reports.served import TTFP_S, bench, serve
from workloads.errors import UserError

REPORT = {
    "requests": {"total", "failures", "incomplete", "input_length", "output_length"},
    "latency": {"time_to_first_token", "time_per_output_token", "request_latency"},
    "throughput": {"output_token_rate", "request_rate"},
}
"""Of llm-d's schema 0.2, which forbids others, those that we fill."""
UNITS = {"time_to_first_token": "s", "time_per_output_token": "s/token", "request_latency": "s"}


def served(folder: Path) -> Path:
    return serve(folder, bench(engines=["liveserve"], grid={"c": [8], "p": [0.0]}, seeds=[0]))


def the_point(folder: Path) -> Measured:
    [point] = load_run(folder).points
    return point


def test_a_benchmark_report_for_llm_d(tmp_path: Path) -> None:
    folder = served(tmp_path)
    [path] = export_run(folder, "llm-d")
    report = yaml.safe_load(path.read_text())
    assert set(report) == {"version", "run", "scenario", "results"} and report["version"] == "0.2"
    aggregate = report["results"]["request_performance"]["aggregate"]
    assert {name: set(fields) for name, fields in aggregate.items()} == REPORT
    assert {name: aggregate["latency"][name]["units"] for name in UNITS} == UNITS
    assert aggregate["requests"]["total"] == len(the_point(folder).requests) > 1
    assert aggregate["requests"]["failures"] == 0
    first = aggregate["latency"]["time_to_first_token"]
    assert [first["p50"], first["max"]] == pytest.approx([TTFP_S["liveserve"]] * 2)
    assert report["run"]["uid"] == the_point(folder).point.id


def test_a_profile_export_for_aiperf(tmp_path: Path) -> None:
    folder = served(tmp_path)
    [path] = export_run(folder, "aiperf")
    export, turns = json.loads(path.read_text()), the_point(folder).requests
    assert export["time_to_first_token"]["unit"] == "ms"
    assert export["time_to_first_token"]["p50"] == pytest.approx(1e3 * TTFP_S["liveserve"])
    a_token_s = (turns["e2e_s"] - turns["ttft_s"]) / (turns["generated_entry"] - 1)
    assert export["inter_token_latency"]["avg"] == pytest.approx(1e3 * a_token_s.mean())
    assert export["request_count"] == {"unit": "requests", "avg": float(len(turns))}
    assert "error_request_count" not in export


def test_failed_turns_and_what_only_we_measure_are_in_both(tmp_path: Path) -> None:
    folder = serve_live(tmp_path, live(grid={"c": [4]}, seeds=[0]))
    [path] = export_run(folder, "llm-d")
    [ours] = export_run(folder, "aiperf")
    failed = int((the_point(folder).requests["status"] == "failed").sum())
    results = yaml.safe_load(path.read_text())["results"]
    assert failed and results["request_performance"]["aggregate"]["requests"]["failures"] == failed
    assert json.loads(ours.read_text())["error_request_count"]["avg"] == failed
    delay_s = the_point(folder).value("send_delay_p99")
    assert results["observability"]["rehearsal"]["send_delay_p99"]["value"] == delay_s and np.isfinite(
        delay_s or np.nan
    )


def test_a_format_that_nobody_has_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--export llmd: no such format\. Did you mean 'llm-d'"):
        export_run(served(tmp_path), "llmd")
