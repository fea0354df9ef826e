"""A run next to a result of another tool: one reader for both, and the differences of their definitions first."""

import json
from pathlib import Path

import pytest

from reports.comparison.foreign import Row, compare_foreign, is_foreign
from workloads.errors import UserError


def guidellm(path: Path, late_s: float = 0.0, rate: float = 2.0, n: int = 12) -> Path:
    fixed = {"time_to_first_token_ms": 100.0 + 1000 * late_s, "prompt_tokens": 10, "output_tokens": 10}
    requests = [
        {"request_start_time": at / rate, "request_end_time": at / rate + 1.0 + late_s, **fixed} for at in range(n)
    ]
    strategy = {"type_": "constant", "rate": rate}
    document = {"benchmarks": [{"config": {"strategy": strategy}, "requests": {"successful": requests}}]}
    path.write_text(json.dumps({"guidellm_version": "0.8.1", **document}))
    return path


def bench(path: Path) -> Path:
    """A result of `vllm bench serve`."""
    each = {"input_lens": 10, "output_lens": 10, "ttfts": 0.2, "itls": [0.1] * 9}
    document = {"endpoint_type": "vllm", "model_id": "some/model", "request_rate": 2.0}
    document |= {name: [value] * 12 for name, value in each.items()}
    path.write_text(json.dumps(document | {"start_times": [at / 2 for at in range(12)]}))
    return path


def aiperf(folder: Path, prefix: str = "") -> Path:
    """Write the files of aiperf 0.13 and return its summary."""
    metrics = {"time_to_first_token": (200.0, "ms"), "request_latency": (1100.0, "ms")}
    metrics |= {"input_sequence_length": (10, "tokens"), "output_sequence_length": (10, "tokens")}
    stated = {name: {"value": value, "unit": unit} for name, (value, unit) in metrics.items()}
    lines = [
        {
            "metadata": {"request_start_ns": begin_ns, "request_end_ns": begin_ns + 13 * 10**8},
            "metrics": stated,
            "error": None,
        }
        for begin_ns in range(0, 6 * 10**9, 5 * 10**8)
    ]
    (folder / f"{prefix or 'profile_export'}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    phases = [{"name": "profiling", "type": "constant", "rate": 2.0}]
    asked = {"models": {"items": [{"name": "some/model"}]}, "phases": phases}
    summary = folder / f"{prefix or 'profile_export_aiperf'}.json"
    summary.write_text(json.dumps({"schema_version": "1.4", "aiperf_version": "0.13.0", "input_config": asked}))
    return summary


@pytest.mark.parametrize("prefix", ["", "mine"])
def test_files_of_aiperf_are_one_run(tmp_path: Path, prefix: str) -> None:
    summary = aiperf(tmp_path, prefix)
    sides = [summary, summary.with_name(f"{prefix or 'profile_export'}.jsonl"), tmp_path]
    other = guidellm(tmp_path.parent / "guidellm.json")
    (first, *others) = [compare_foreign(other, side) for side in sides]
    assert {(row.load, row.a, row.b) for row in first.rows if row.metric == "TTFT P50"} == {("2/s", 100.0, 200.0)}
    assert all(each.rows == first.rows for each in others)
    assert first.notes[1].startswith("aiperf: TTFT and E2E count from when the client sent")


def test_a_summary_of_aiperf_without_its_records_is_refused(tmp_path: Path) -> None:
    summary = aiperf(tmp_path)
    (tmp_path / "profile_export.jsonl").unlink()
    with pytest.raises(UserError, match=r"profile_export.jsonl is not next to it; give aiperf's records"):
        compare_foreign(summary, bench(tmp_path / "b.json"))


def test_metrics_of_both_are_made_in_one_way(tmp_path: Path) -> None:
    a, b = guidellm(tmp_path / "a.json"), bench(tmp_path / "b.json")
    assert is_foreign(a) and not is_foreign(tmp_path / "none")
    compared = compare_foreign(a, b)
    times = {"TTFT": (100, 200), "time between tokens": (100, 100), "E2E": (1000, 1100)}
    expected = {(f"{name} P{q}", "ms"): pair for name, pair in times.items() for q in (50, 90)}
    expected |= {(f"{name} P99", "ms"): (None, None) for name in times} | {("requests", ""): (12, 12)}
    rates = {"requests": 12, "tokens of prompts": 120, "tokens of replies": 120}
    expected |= {(name, "1/s"): (total / 6.5, total / 6.6) for name, total in rates.items()}
    found = {(row.metric, row.unit): (row.a, row.b) for row in compared.rows}
    assert found == {key: pytest.approx(pair) for key, pair in expected.items()}
    assert {row.load for row in compared.rows} == {"2/s"} and compared.rows[1].ratio == 2
    assert compared.notes[0].startswith("guidellm: TTFT and E2E count from when the client sent")
    assert compared.notes[1].startswith("vllm bench serve: ")


def test_there_is_no_ratio_to_nothing() -> None:
    assert [Row("", "", "", a, b).ratio for a, b in ((2.0, 1.0), (0.0, 1.0), (1.0, None))] == [0.5, None, None]


@pytest.mark.parametrize(("n", "shown"), [(1, [50]), (9, [50]), (10, [50, 90]), (99, [50, 90]), (100, [50, 90, 99])])
def test_a_percentile_is_shown_from_as_many_requests_as_it_needs(tmp_path: Path, n: int, shown: list[int]) -> None:
    path = guidellm(tmp_path / "a.json", n=n)
    rows = {row.metric: row.a for row in compare_foreign(path, path).rows}
    assert [q for q in (50, 90, 99) if rows[f"TTFT P{q}"] is not None] == shown


def test_loads_meet_by_name(tmp_path: Path) -> None:
    one, other = guidellm(tmp_path / "a.json"), guidellm(tmp_path / "b.json", late_s=0.1, rate=4.0)
    assert {row.load for row in compare_foreign(one, other).rows} == {"2/s / 4/s"}
    document = json.loads(one.read_text())
    document["benchmarks"] += json.loads(other.read_text())["benchmarks"]
    both = tmp_path / "both.json"
    both.write_text(json.dumps(document))
    assert {row.load for row in compare_foreign(both, other).rows} == {"4/s"}
    assert [row.load for row in compare_foreign(both, both).rows[::13]] == ["2/s", "4/s"]
    with pytest.raises(UserError, match=r"no load of .* \(2/s, 4/s\) has the name of one of .* \(8/s\)"):
        compare_foreign(both, guidellm(tmp_path / "c.json", rate=8.0))
