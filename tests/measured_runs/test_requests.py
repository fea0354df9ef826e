"""Requests as vLLM's traces, guidellm, `vllm bench serve` and inference-perf have them."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.measured_runs import aiperf
from harness.measured_runs.guidellm import read_parts, split
from harness.measured_runs.inference_perf import read_parts as read_stages
from harness.measured_runs.measured_run import Request, by_arrival
from harness.measured_runs.vllm_bench import read_part
from harness.measured_runs.vllm_server import read_spans
from tests.measured_runs.conftest import line, span
from workloads.errors import UserError

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file of text or JSON and give its path."""

    def write(content: Any, name: str = "results.json") -> Path:
        (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
        return tmp_path / name

    return write


def test_spans_of_several_resources_on_a_line_and_other_spans_among_them(write: Write) -> None:
    other = {"name": "step", "startTimeUnixNano": "5", "attributes": [{"key": "batch", "value": {"intValue": 3}}]}
    spans = span(10, 100, 5, 0.1, 0.5), other, span(11, 200, 1, 0.2, 0.2)
    seen = read_spans(write(line(*spans) + "\n\n" + line() + "\n"))
    assert [(one.arrival_s, one.prompt_tokens, one.output_tokens) for one in seen] == [(10, 100, 5), (11, 200, 1)]
    assert (seen[0].ttft_s, seen[0].e2e_s, seen[0].queue_s) == (0.1, 0.5, 0.001)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (line(span(1, 1, 1, 1, 1)) + '\n{"resourceSpans": [', "line 2, is not JSON"),
        ("[1, 2]", "line 1, is not an OpenTelemetry trace"),
        (line({"attributes": span(1, 1, 1, 1, 1)["attributes"]}), "startTimeUnixNano"),
    ],
)
def test_a_broken_line_is_named(write: Write, text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_spans(write(text))


COUNTED = {"prompt_tokens": 10, "output_tokens": 3, "time_to_first_token_ms": 500.0}
NEW = {"response_id": "cmpl-a", "request_start_time": 5.0, "request_latency": 2.0, **COUNTED}
OLD = {"start_time": 5.0, "end_time": 7.0, **COUNTED}


def benchmarks(strategy: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    return {"benchmarks": [{"config": {"strategy": strategy}, "requests": {"successful": [request]}}]}


@pytest.mark.parametrize("request_", [NEW, OLD])
def test_guidellm_of_two_versions_says_the_same(tmp_path: Path, request_: dict[str, Any]) -> None:
    path = tmp_path / "guidellm-results.json.gz"
    path.write_bytes(gzip.compress(json.dumps(benchmarks({"type_": "constant", "rate": 0.4321}, request_)).encode()))
    (part,) = read_parts(path)
    (one,) = part.requests
    assert (part.label, one.ttft_s, one.e2e_s, one.arrival_s) == ("0.432/s", 0.5, 2.0, 5.0)


@pytest.mark.parametrize(
    ("strategy", "label"),
    [
        ({"type_": "synchronous"}, "one at a time"),
        ({"type_": "throughput", "max_concurrency": 512}, "as many as go"),
        ({"type_": "concurrent", "streams": 8}, "8 at a time"),
        ({"type_": "poisson", "rate": 2}, "2/s, Poisson"),
    ],
)
def test_a_part_is_called_by_its_load(write: Write, strategy: dict[str, Any], label: str) -> None:
    assert read_parts(write(benchmarks(strategy, NEW)))[0].label == label


def test_a_missing_field_of_guidellm_is_named(write: Write) -> None:
    with pytest.raises(UserError, match=r"benchmark 1, request 1: 'request_start_time' or .* is missing"):
        read_parts(write(benchmarks({"type_": "throughput"}, {"output_tokens": 3})))
    with pytest.raises(UserError, match="has no benchmarks"):
        read_parts(write({}))


BENCH: dict[str, Any] = {
    "endpoint_type": "vllm",
    "model_id": "some/model",
    "request_rate": 2.0,
    "max_concurrency": None,
}
BENCH |= {"request_throughput": 1.9, "input_lens": [10, 20, 0], "output_lens": [3, 1, 0], "ttfts": [0.1, 0.2, 0.0]}
BENCH |= {"itls": [[0.01, 0.03], [], []], "start_times": [100.0, 100.5, 101.0], "errors": ["", "", "refused"]}


def test_a_result_of_vllm_bench(write: Write) -> None:
    part = read_part(write(BENCH))
    found = [(one.arrival_s, one.prompt_tokens, one.e2e_s) for one in part.requests]
    assert part.label == "2/s" and found == [(100.0, 10, pytest.approx(0.14)), (100.5, 20, 0.2)]
    at_once = read_part(write(BENCH | {"start_times": None, "request_rate": "inf"}))
    assert {one.arrival_s for one in at_once.requests} == {0.0}


@pytest.mark.parametrize("missing", ["input_lens", "itls", "start_times"])
def test_a_result_without_details_says_how_to_get_them(write: Write, missing: str) -> None:
    path = write({name: value for name, value in BENCH.items() if name != missing})
    with pytest.raises(UserError, match=f"has no {missing}.*--save-detailed"):
        read_part(path)


def record(start_s: int, turn: int = 0, phase: str = "profiling", error: object = None, **usage: int) -> str:
    """A line of aiperf's records."""
    values = {"input_sequence_length": 90, "output_sequence_length": 5, "time_to_first_token": 100.0}
    values |= {"request_latency": 500.0} | usage
    metadata = {"request_start_ns": start_s * 10**9, "request_end_ns": (start_s + 1) * 10**9, "turn_index": turn}
    metadata |= {"benchmark_phase": phase, "x_request_id": "id", "was_cancelled": False}
    metrics = {} if error else {name: {"value": value, "unit": "x"} for name, value in values.items()}
    return json.dumps({"metadata": metadata, "metrics": metrics, "error": error}) + "\n"


def test_records_of_aiperf_by_the_servers_count_of_tokens(write: Write) -> None:
    counted = record(7, usage_prompt_tokens=100, usage_completion_tokens=6)
    failed = record(6, error={"code": 500})
    path = write(record(1, phase="warmup") + record(5) + failed + counted, "profile_export.jsonl")
    part = aiperf.read_part(path)
    assert part.label == "all" and aiperf.model(path) is None
    by_client, by_server = part.requests
    assert (by_client.prompt_tokens, by_client.output_tokens) == (90, 5)
    assert (by_server.prompt_tokens, by_server.output_tokens, by_server.arrival_s) == (100, 6, 7.0)
    assert (by_server.ttft_s, by_server.e2e_s, by_server.id) == (0.1, 0.5, "id")


OLDER = {"endpoint": {"model_names": ["a/b"]}}
NEWER = {"models": {"items": [{"name": "a/b"}]}}
PROFILING = {"name": "mine", "kind": "profiling", "rate": 2}


@pytest.mark.parametrize(
    ("asked", "label"),
    [
        (OLDER | {"loadgen": {"concurrency": 4}}, "4 at a time"),
        (OLDER | {"loadgen": {"request_rate": 2.5, "concurrency": None}}, "2.5/s"),
        (OLDER | {"loadgen": {"request_rate": 2, "concurrency": 8}}, "2/s, 8 at a time"),
        (NEWER | {"phases": [{"name": "profiling", "type": "concurrency", "concurrency": 4}]}, "4 at a time"),
        (NEWER | {"phases": [{"name": "profiling", "type": "concurrency"}]}, "1 at a time"),
        (NEWER | {"phases": [{"name": "warmup", "concurrency": 9}, PROFILING]}, "2/s"),
        (NEWER | {"phases": [{"name": "a", "rate": 1}, {"name": "b", "rate": 2}]}, "all"),
    ],
)
def test_the_load_and_the_model_of_aiperf_are_in_its_summary(write: Write, asked: dict[str, Any], label: str) -> None:
    path = write(record(1), "mine.jsonl")
    write({"input_config": asked}, "mine_aiperf.json")
    assert (aiperf.read_part(path).label, aiperf.model(path)) == (label, "a/b")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (record(1) + "{", "line 2, is not JSON"),
        (record(1, error={"code": 1}), "has no successful request"),
        (record(1, turn=1), "line 1, is a later turn"),
        (record(1).replace("output_sequence", "x"), "'metrics.usage_completion_tokens.value' or .* is missing"),
    ],
)
def test_a_record_of_aiperf_that_cannot_be_used_is_refused(write: Write, text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        aiperf.read_part(write(text, "profile_export.jsonl"))


def lifecycle(start: float, prompt: str, **info: object) -> dict:
    asked = json.dumps({"prompt": prompt, "max_tokens": 4})
    counted = {"input_tokens": 50, "output_tokens": 5, "output_token_times": [start + 0.1, start + 0.4]} | info
    return {"start_time": start, "end_time": start + 0.5, "request": asked, "info": counted, "error": None}


PROFILE = {
    "load": {"type": "constant", "stages": [{"rate": 2, "duration": 1}, {"rate": 1, "duration": 2}]},
    "data": {"shared_prefix": {"system_prompt_len": 8}},
    "server": {"ignore_eos": True},
}


def test_requests_of_inference_perf_by_stage_with_what_they_share(write: Write) -> None:
    failed = lifecycle(1.2, "lost") | {"error": {"error_type": "timeout"}, "info": None}
    path = write([lifecycle(0, "again"), lifecycle(0.7, "new"), failed, lifecycle(2.0, "again")])
    first, second = read_stages(path, PROFILE)
    assert (first.label, len(first.requests), second.label, len(second.requests)) == ("2/s", 2, "1/s", 1)
    once, new = first.requests
    assert (once.output_tokens, once.ttft_s, once.e2e_s) == (4, 0.1, 0.5), "what was asked for, not what was counted"
    assert (once.prefix, once.prefix_tokens) == (second.requests[0].prefix, 50), "all of it"
    assert new.prefix != once.prefix and new.prefix_tokens == 8


def test_newer_inference_perf_and_a_server_that_may_stop(write: Write) -> None:
    info = {"request_metrics": {"text": {"input_tokens": 7}}, "response_metrics": {"output_tokens": 9}}
    ((one,),) = [part.requests for part in read_stages(write([lifecycle(0, "x") | {"info": info}]), {})]
    assert (one.prompt_tokens, one.output_tokens, one.ttft_s, one.prefix) == (7, 9, None, None)


def divided(spans: list[tuple[float, float]], most: int | None) -> list[tuple[str, int]]:
    """Label and number of requests of the parts of a run of such arrivals and lengths, s."""
    seen = by_arrival(Request(start_s, 10, 5, 0.1, e2e_s) for start_s, e2e_s in spans)
    return [(part.label, len(part.requests)) for part in split(seen, most)]


def test_a_sweep_with_refused_requests_is_divided() -> None:
    sweep = [(i * 3.0, 2.9) for i in range(4)] + [(20.0 + 0.01 * i, 5.0) for i in range(4)]
    sweep += [(40 + 2.0 * i, 1.0) for i in (0, 1, 2, 4, 5)] + [(60 + 1.3 * i, 1.5) for i in (0, 2, 3, 4)]
    assert divided(sweep, 6) == [("one at a time", 4), ("as many as go", 4), ("0.5/s", 5), ("0.769/s", 4)]
    assert divided(sweep, 3) == [("all", 17)], "parts of more than were asked for are no parts"


@given(
    stages=st.lists(st.tuples(st.floats(1.1, 3.0), st.integers(15, 40)), min_size=1, max_size=5),
    slowest=st.floats(0.1, 3.0),
    e2e_s=st.floats(0.2, 3.0),
    seed=st.integers(0, 10**6),
)
def test_constant_rates_are_divided(stages: list[tuple[float, int]], slowest: float, e2e_s: float, seed: int) -> None:
    """`stages`: the rate over that of the stage before, and the number of requests. The server is empty for 2.5 s
    between two stages, and the next one begins off the rhythm of the last."""
    rng, rate = np.random.default_rng(seed), slowest
    seen = [(1.01 * e2e_s * i, e2e_s) for i in range(5)]  # one at a time
    seen += [(seen[-1][0] + e2e_s + 3, 2 * e2e_s)] * 6  # as many as go
    ends = [5, 11]
    for faster, count in stages:
        gap_s, rate = 1 / rate, rate * faster
        last_s, empty_s = seen[-1][0], max(start_s + took_s for start_s, took_s in seen) + 2.5
        begin_s = last_s + (np.ceil((empty_s - last_s) / gap_s) + 0.5) * gap_s  # between two beats of the last stage
        starts = np.arange(count) / rate + rng.uniform(0, 0.01, count)
        seen += [(begin_s + start_s - starts[0], e2e_s * rng.uniform(0.7, 1.3)) for start_s in starts]
        ends.append(ends[-1] + count)
    assert np.cumsum([count for _, count in divided(seen, None)]).tolist() == ends


def test_the_time_between_tokens_takes_two_of_them_and_both_times() -> None:
    assert Request(0.0, 10, 5, 0.1, 0.5).itl_s == pytest.approx(0.1)
    for request in (Request(0.0, 10, 1, 0.1, 0.1), Request(0.0, 10, 5, None, 0.5), Request(0.0, 10, 5, 0.1)):
        assert request.itl_s is None
