from pathlib import Path

import pytest

from harness.measured_runs.folder import read_runs
from harness.measured_runs.measured_run import CLIENT_S, MeasuredRun, SummaryRun
from harness.measured_runs.summary_csv import COLUMNS, read_summaries
from harness.measured_runs.vllm_server import read_log
from tests.measured_runs.conftest import line, span
from tests.measured_runs.test_requests import BENCH, NEW, PROFILE, benchmarks, lifecycle, record
from workloads.errors import UserError

TRACES = "\n".join(line(span(10 + i, 100, 5, 0.1, 0.5, f"cmpl-{i}-0-ab")) for i in range(3))
CONFIG = "model: some/model\ntensor_parallelism: 2\nmax_num_seqs: 64\nhardware: H100\napp: train\n"
LOG = """\
INFO 01-19 vLLM API server version 0.11.0
INFO non-default args: {'max_model_len': 8192, 'gpu_memory_utilization': 0.95}
INFO 01-20 vLLM API server version 0.19.1
INFO non-default args: {'model': '/cache/x', 'max_num_batched_tokens': 512, 'block_size': 32,\
 'served_model_name': ['a/b']}
INFO Asynchronous scheduling is enabled.
INFO Initializing a V1 LLM engine (v0.19.1) with config: model='/cache/x', dtype=torch.float16, max_seq_len=4096,\
 tensor_parallel_size=4, quantization=fp8, enforce_eager=True, enable_prefix_caching=False, seed=0
INFO GPU KV cache size: 64,000 tokens
INFO Engine 000: vllm cache_config_info with initialization after num_gpu_blocks is: 2000
INFO non-default args: {'max_num_batched_tokens': 102"""
GUIDELLM = benchmarks({"type_": "constant", "rate": 2}, NEW) | {"args": {"model": "a/b"}}


def only(path: Path) -> MeasuredRun:
    (run,) = read_runs(path)
    assert isinstance(run, MeasuredRun)
    return run


def test_a_run_has_the_requests_of_its_traces_and_the_server_of_its_configuration(folder):
    run = only(folder(**{"traces.json": TRACES, "exp-config.yaml": CONFIG}))
    assert run.name == "run" and run.parts == (("all", 0, 3),) and run.client is None
    assert [one.arrival_s for one in run.requests] == [0, 1, 2]
    assert run.requests[0].itl_s == pytest.approx(0.1) and run.requests[0].prefix is None
    assert (run.server.model, run.server.tp, run.server.max_num_seqs, run.server.gpu) == ("some/model", 2, 64, "H100")


def test_a_server_is_what_its_last_start_in_the_log_says_but_for_a_line_that_is_cut(folder):
    made = folder(**{"traces.json": TRACES, "vllm.log": LOG})
    (run,) = read_runs(made)
    server = run.server
    assert (server.model, server.tp, server.vllm, server.kv_tokens) == ("a/b", 4, "0.19.1", 64_000)
    assert (server.max_num_batched_tokens, server.max_model_len, server.block_size) == (512, 4096, 32)
    assert (server.quantization, server.async_scheduling, server.prefix_caching) == ("fp8", True, False)
    assert server.gpu_memory_utilization is None, "of the server before, which failed to start"
    assert read_log(made / "vllm.log")["max_num_batched_tokens"] == 512


def test_each_run_is_found_in_its_folder_and_other_files_are_passed_over(folder):
    made = folder(
        **{"a__any.json": TRACES, "a__exp-config.yaml": CONFIG, "b__c__one.json": BENCH, "b__c__two.json": BENCH},
        **{"notes.md": "x", "other.csv": "a,b\n1,2\n", "b__c__x.json": "{}"},
    )
    assert [run.name for run in read_runs(made)] == ["a", "b-c-one", "b-c-two"]


TAIL = {"mean": 2.0, "p90": 3.0, "p99": 4.0}
DONE = {
    "latency": {"request_latency": TAIL, "time_to_first_token": {"mean": 0.5, "p90": 0.6, "p99": 0.7}},
    "prompt_len": {"mean": 570.5},
    "output_len": {"mean": 3.5},
}
SHARED = {"num_groups": 10, "num_prompts_per_group": 10, "system_prompt_len": 100, "output_len": 4}
SETTINGS = {"exp-config.yaml": CONFIG, "profile.yaml": PROFILE | {"data": {"shared_prefix": SHARED}}}
SETTINGS["results__summary_lifecycle_metrics.json"] = {"successes": DONE, "failures": {"count": 2}}


def test_inference_perf_without_its_requests(folder):
    (run,) = read_runs(folder(**SETTINGS))
    assert isinstance(run, SummaryRun)
    assert run.rates == ((2, 1), (1, 2)) and run.prompts == 100
    assert (run.input_tokens, run.output_tokens, run.means["itl"]) == (570.5, 4, 0.5)
    assert any("2 requests failed" in said for said in run.assumed)


def test_inference_perf_by_stage_and_with_its_requests(folder):
    stage = {"successes": DONE, "load_summary": {"schedule_delay": {}, "achieved_rate": 2.5}, "failures": {"count": 0}}
    made = folder(**SETTINGS, **{f"results__stage_{at}_lifecycle_metrics.json": stage for at in range(2)})
    first, second = stages = read_runs(made)
    assert isinstance(first, SummaryRun) and isinstance(second, SummaryRun)
    assert (first.name, first.workload, first.rates, first.achieved) == ("run-stage-0", "2/s", ((2, 1),), 2.5)
    assert (second.name, second.workload, second.rates, second.earlier) == ("run-stage-1", "1/s", ((1, 2),), ((2, 1),))
    assert first.earlier == () and first.client_s == CLIENT_S["inference-perf"]
    assert read_runs(made / "results" / "stage_1_lifecycle_metrics.json") == stages[1:]
    entries = [lifecycle(i / 2, "x") for i in range(4)]
    run = only(folder(**{"results__per_request_lifecycle_metrics.json": entries}))
    assert run.client is None and run.parts == (("2/s", 0, 2), ("1/s", 2, 4))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"notes.md": "x"}, "has nothing to read in it; give OpenTelemetry traces"),
        ({"x.json": '{"benchmarks": [{"stats": 1}]}'}, "has nothing to read in it"),
        ({"traces.json": ""}, "traces.json is empty"),
        ({"traces.json": line(), "exp-config.yaml": CONFIG}, "traces.json has no served requests"),
        ({"traces.json": TRACES, "exp-config.yaml": "model: [\n"}, "exp-config.yaml is not valid YAML, line 2"),
        ({"traces.json": TRACES, "exp-config.yaml": "model: x\ntp: two"}, "'tensor_parallelism' should be a number"),
        ({"traces.json": TRACES, "profile.yaml": "- 1"}, "profile.yaml is not a list of names and values"),
        ({"guidellm-results.json.gz": "{}"}, "has no benchmarks"),
        ({"guidellm-results.json": "{"}, "is not a JSON file"),
        ({"summary_lifecycle_metrics.json": "{}", "exp-config.yaml": CONFIG}, "put profile.yaml with load.stages"),
        ({"per_request_lifecycle_metrics.json": "[]"}, "has no requests; set report"),
        (
            {"a.json": GUIDELLM, "b.json": GUIDELLM, "traces.json": TRACES},
            "several runs .*; put each run into a folder",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_named(folder, files, said):
    with pytest.raises(UserError, match=said):
        read_runs(folder(**files))


@pytest.mark.parametrize("name", ["benchmarks.json", "results__mine.json"])
@pytest.mark.parametrize("content", [GUIDELLM, BENCH, TRACES, record(1)])
def test_a_file_is_known_by_its_content_and_read_alone_or_by_its_folder(folder, name, content):
    made = folder(**{name: content, "exp-config.yaml": CONFIG, "vllm_logging.json": "{}"})
    assert read_runs(made) == read_runs(made / name.replace("__", "/"))
    run = only(made)
    assert (run.name, run.server.model, len(run.requests) > 0) == ("run", "some/model", True)


CLIENT = {"request_start_time": 10.9, "prompt_tokens": 100, "output_tokens": 5, "response_id": "cmpl-1"}
CONSTANT = {"type_": "constant", "rate": 1}


def test_requests_of_the_client_are_matched_with_those_of_the_server_by_name(folder):
    results = benchmarks(CONSTANT, CLIENT)
    made = folder(**{"traces.json": TRACES, "exp-config.yaml": CONFIG, "guidellm-results.json": results})
    run = only(made)
    assert run.parts == (("1/s", 0, 3),) and run.client is not None
    assert [one is None for one in run.client] == [True, False, True], "two were asked for by somebody else"


def test_the_time_that_a_client_adds_is_measured_where_a_server_was_traced_too(folder):
    both = benchmarks(CONSTANT, CLIENT | {"time_to_first_token_ms": 107.0})
    made = folder(
        **{"both__traces.json": TRACES, "both__benchmarks.json": both, "both__exp-config.yaml": CONFIG},
        **{"alone__benchmarks.json": GUIDELLM, "bench__x.json": BENCH},
    )
    added = {run.name: run.client_s for run in read_runs(made)}
    assert added == {"both": 0.0, "alone": pytest.approx(0.007), "bench": None}


def test_the_config_of_the_model_is_found_with_the_run(folder):
    for place in ("config.json", "model__config.json", "b__config.json"):
        made = folder(**{f"{place[0]}__benchmarks.json": GUIDELLM, f"{place[0]}__{place}": {"model_type": "llama"}})
    configs = [run.server.config for run in read_runs(made)]
    assert configs == [made / name for name in ("b/b/config.json", "c/config.json", "m/model/config.json")]
    (made / "c" / "config.json").write_text("{}")
    assert next(run for run in read_runs(made) if run.name == "c").server.config is None, "of a tool"


ROW = ["7", "mistralai/Mixtral-8x7B-v0.1", "general-lite", "H100", "2", "2048", "FP16", "True", "0.9"]


def summary(*rows: list[str]) -> str:
    return "\n".join(",".join(row) for row in (list(COLUMNS), *rows))


def test_a_summary_by_experiment(tmp_path):
    path = tmp_path / "s.csv"
    path.write_text(summary([*ROW, "e2e_mean", "1500"], [*ROW, "ttft_p99", "20"]))
    (run,) = read_runs(path)
    assert isinstance(run, SummaryRun)
    assert run.measured == {"e2e_mean": 1.5, "ttft_p99": 0.02}
    assert run.rates == ((2.5, 600), (6, 600)) and run.input_tokens == 570.68
    assert run.server.kv_tokens == 440_176
    assert "Evicted KV blocks went to 8 GiB of host memory." in run.assumed
    assert run.assumed and all(said.endswith(".") for said in run.assumed)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (summary(), "has no rows"),
        (summary([*ROW, "e2e_men", "1"]), "line 2: metric 'e2e_men' is not known. Did you mean 'e2e_mean'"),
        (summary([*ROW, "e2e_mean", "fast"]), "line 2: 'measured_ms' should be a number, got 'fast'"),
        (summary([*ROW[:6], "INT3", *ROW[7:], "e2e_mean", "1"]), "precision 'INT3' is not known"),
    ],
)
def test_a_wrong_summary_is_named(tmp_path, text, said):
    path = tmp_path / "s.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=said):
        read_summaries(path)
