"""guidellm's and aiperf's files as results of ours, and ours in llm-d's and aiperf's formats."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from harness.neighbours.imported import results_of
from reports.comparison.compare import compare
from reports.live.export import export_run
from reports.runs.measured import Measured, load_run
from workloads.errors import UserError


def aiperf_line(index: int, ttft_ms: float, latency_ms: float, tokens: int, **metadata: Any) -> str:
    start = 1_700_000_000_000_000_000 + index * 250_000_000
    about = {
        "session_num": index,
        "request_start_ns": start,
        "request_end_ns": start + round(latency_ms * 1e6),
        "benchmark_phase": "profiling",
        **metadata,
    }
    metrics = {
        "time_to_first_token": {"value": ttft_ms, "unit": "ms"},
        "request_latency": {"value": latency_ms, "unit": "ms"},
        "output_sequence_length": {"value": tokens, "unit": "tokens"},
        "input_sequence_length": {"value": 100, "unit": "tokens"},
    }
    return json.dumps({"metadata": about, "metrics": metrics, "error": None})


def failed_line(index: int) -> str:
    about = json.loads(aiperf_line(index, 0, 500, 0))["metadata"]
    return json.dumps({"metadata": about, "metrics": {}, "error": {"type": "HTTPError", "code": 503}})


TTFT_MS = [30.0 + index for index in range(40)]


def aiperf_file(folder: Path, slower_ms: float = 0.0) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "profile_export.jsonl"
    lines = [aiperf_line(i, ms + slower_ms, ms + slower_ms + 200, 21) for i, ms in enumerate(TTFT_MS)]
    warmup = aiperf_line(90, 9000, 9999, 5, benchmark_phase="warmup")
    path.write_text("\n".join([warmup, *lines, failed_line(40)]) + "\n")
    return path


def the_point(folder: Path) -> Measured:
    [point] = load_run(folder).points
    return point


def test_aiperf_s_requests_are_turns(tmp_path: Path) -> None:
    point = the_point(results_of(aiperf_file(tmp_path)))
    assert point.value("ttft_p50") == pytest.approx(np.median(TTFT_MS) / 1e3)
    assert point.value("completed") == 40 and point.value("failed") == 1
    assert point.value("tbt_p50") == pytest.approx(0.010), "200 ms for twenty tokens"
    assert point.value("send_slip_p99") is None, "aiperf's own lateness is not in its file"
    assert point.record.table("failures")["reason"].tolist() == ["HTTPError"]


def test_the_same_file_again_is_the_same_results(tmp_path: Path) -> None:
    path = aiperf_file(tmp_path)
    first = results_of(path)
    before = {file: file.stat().st_mtime_ns for file in (first / "points").rglob("*.parquet")}
    assert results_of(path) == first
    assert {file: file.stat().st_mtime_ns for file in (first / "points").rglob("*.parquet")} == before


def test_statistics_lead_to_the_records_beside_them(tmp_path: Path) -> None:
    records = aiperf_file(tmp_path)
    statistics = tmp_path / "profile_export_aiperf.json"
    statistics.write_text("{}")
    assert the_point(results_of(statistics)).value("completed") == 40
    records.unlink()
    with pytest.raises(UserError, match="let aiperf export its records beside it"):
        results_of(statistics)


def test_two_files_are_compared(tmp_path: Path) -> None:
    comparison = compare(
        aiperf_file(tmp_path / "a"), aiperf_file(tmp_path / "b", slower_ms=10.0), ["ttft_p50"]
    )
    [cell] = comparison.cells
    assert cell.same_trace
    assert cell.metrics[0].difference.median == pytest.approx(0.010)


def guidellm_file(folder: Path) -> Path:
    def request(start: float, ttft_ms: float) -> dict[str, Any]:
        about = {"request_start_time": start, "request_end_time": start + 0.5, "prompt_tokens": 50}
        return {**about, "output_tokens": 11, "time_to_first_token_ms": ttft_ms, "request_latency": 0.5}

    benchmarks = [
        {
            "config": {"strategy": {"type_": kind, "rate": rate}},
            "requests": {
                "successful": [request(100.0 + i / rate, 100.0 * rate) for i in range(12)],
                "errored": [{"request_start_time": 101.0, "prompt_tokens": 50}],
            },
        }
        for kind, rate in (("constant", 1.0), ("poisson", 2.0))
    ]
    path = folder / "guidellm-results.json"
    path.write_text(json.dumps({"args": {"target": "http://host:8000"}, "benchmarks": benchmarks}))
    return path


def test_guidellm_s_benchmarks_are_loads(tmp_path: Path) -> None:
    run = load_run(results_of(guidellm_file(tmp_path)))
    assert run.experiment.set["url"] == "http://host:8000"
    assert [Path(dict(cell)["path"]).stem for cell in run.cells] == ["1-s", "2-s-Poisson"]
    assert [point.value("ttft_p50") for point in run.points] == pytest.approx([0.1, 0.2])
    assert [point.value("failed") for point in run.points] == [1, 1]


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("x.json", "{}", "has no benchmarks; give the results of guidellm"),
        ("profile_export.jsonl", "{}\n", "line 1: 'metadata' is missing; give profile_export.jsonl"),
        ("profile_export.jsonl", failed_line(0), "no request was answered"),
    ],
)
def test_what_is_no_such_file_is_said(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UserError, match=sentence):
        results_of(path)


REPORT = {
    "requests": {"total", "failures", "incomplete", "input_length", "output_length"},
    "latency": {"time_to_first_token", "time_per_output_token", "request_latency"},
    "throughput": {"output_token_rate", "request_rate"},
}
"""Of llm-d's schema 0.2, which forbids others, those that we fill."""
UNITS = {"time_to_first_token": "s", "time_per_output_token": "s/token", "request_latency": "s"}


def test_a_benchmark_report_for_llm_d(tmp_path: Path) -> None:
    folder = results_of(aiperf_file(tmp_path))
    [path] = export_run(folder, "llm-d")
    report = yaml.safe_load(path.read_text())
    assert set(report) == {"version", "run", "scenario", "results"} and report["version"] == "0.2"
    aggregate = report["results"]["request_performance"]["aggregate"]
    assert {name: set(fields) for name, fields in aggregate.items()} == REPORT
    assert {name: aggregate["latency"][name]["units"] for name in UNITS} == UNITS
    assert aggregate["requests"]["total"] == 41 and aggregate["requests"]["failures"] == 1
    first = aggregate["latency"]["time_to_first_token"]
    assert first["p50"] == pytest.approx(np.median(TTFT_MS) / 1e3) and first["max"] == pytest.approx(0.069)
    assert report["run"]["uid"] == the_point(folder).point.id


def test_aiperf_reads_back_what_it_wrote(tmp_path: Path) -> None:
    [path] = export_run(results_of(aiperf_file(tmp_path)), "aiperf")
    export = json.loads(path.read_text())
    assert export["time_to_first_token"]["unit"] == "ms"
    assert export["time_to_first_token"]["p50"] == pytest.approx(np.median(TTFT_MS))
    assert export["inter_token_latency"]["avg"] == pytest.approx(10.0)
    assert export["request_count"] == {"unit": "requests", "avg": 40.0}
    assert export["error_request_count"]["avg"] == 1.0


def test_a_format_that_nobody_has_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--export llmd: no such format\. Did you mean 'llm-d'"):
        export_run(results_of(aiperf_file(tmp_path)), "llmd")
