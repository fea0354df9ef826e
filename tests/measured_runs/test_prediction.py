import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from engines.devices.hardware import load_gpu
from engines.devices.host import CALIBRATED_ON
from engines.models import load_model
from harness.exit_status import UNDECIDED
from harness.measured_runs.folder import read_runs
from harness.measured_runs.measured_run import MeasuredRun, Request, Server, SummaryRun
from harness.measured_runs.predict import Failed, Prediction, beside, predict, serve, served_model
from harness.measured_runs.replayed import asynchronous, batch_limits, deployment, queue_grows
from harness.measured_runs.runs_report import REQUESTS, report_of
from reports.calibration.measured_runs import sentences, tables
from reports.cli.app import NAMES, build
from reports.replays.served import known_error, measured_errors
from tests.measured_runs.conftest import line, span
from workloads.errors import UserError

CONFIG = "model: meta-llama/Llama-3.1-8B\nmax_num_seqs: 64\nhardware: NVIDIA H100 80GB HBM3\nvllm_version: 0.15.1\n"
LLAMA: dict[str, Any] = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16"}
LLAMA |= {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32}
LLAMA |= {"num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072}
TRACES = "\n".join(line(span(10 + i, 100, 5, 0.02, 0.06, f"cmpl-{i}-0-ab")) for i in range(3))


@pytest.mark.slow("replays measured runs")
def test_real_runs_are_predicted_within_what_is_said_of_them(truth: Path, tmp_path: Path) -> None:
    runs: list[MeasuredRun | SummaryRun] = [run for run in read_runs(truth) if isinstance(run, MeasuredRun)]
    predictions, failed = predict(runs, tmp_path, "h100")
    report = report_of(predictions, failed, CALIBRATED_ON)
    assert not failed and len(report.rows) == 17
    below = next(each for each in report.totals if each.of is None and each.kind == "below saturation")
    assert (below.held_out, below.loads, below.requests) == (False, 14, 378)
    assert any(each.model == "codellama_34b_instruct" for each in measured_errors())
    for name, most in (("ttft", 0.10), ("itl", 0.05), ("e2e", 0.05)):
        error = below.absolute[name]
        assert error is not None and error < most
    rows = [row for row in report.rows if row.kind == "below saturation"]
    assert len(rows) == 14 and all(row.calibrated for row in rows)
    assert max(error for row in rows if (error := row.latencies["e2e"].absolute)) < 0.06


def falls_over(path: str, *rest: Any) -> Any:
    if Path(path).parent.name == "bad":
        raise ArithmeticError("one and one is three")
    return serve(path, *rest)


def a_run(measured: list[float | None], name: str = "a") -> MeasuredRun:
    requests = tuple(Request(float(i), 10, 5, ttft, (ttft or 0.06) + 0.04, 0.0) for i, ttft in enumerate(measured))
    return MeasuredRun(name, Server("some/model", "H100"), requests, (("all", 0, len(measured)),), None)


def predicted(run: MeasuredRun, ttft: list[float], saturated: bool = False) -> Prediction:
    table = pd.DataFrame({"request": range(len(ttft)), "part": "all", "saturated": saturated})
    for name in ("ttft", "itl", "e2e"):
        table[f"measured_{name}"] = np.array([getattr(one, f"{name}_s") for one in run.requests], float)
    table = table.assign(
        predicted_ttft=ttft, predicted_itl=table["measured_itl"], predicted_e2e=2 * table["measured_e2e"]
    )
    return Prediction(run, table, "measured kernels", "h100", ("the sky is blue",))


def test_errors_are_means_over_requests_that_were_measured() -> None:
    report = report_of([predicted(a_run([0.1, 0.2, None]), [0.11, 0.18, 9.0])])
    error = report.rows[0].latencies["ttft"]
    assert error.absolute == pytest.approx(0.1)  # of 0.01 / 0.1 and 0.02 / 0.2
    assert error.signed == pytest.approx((0.11 + 0.18) / (0.1 + 0.2) - 1, abs=1e-5)
    assert report.rows[0].latencies["e2e"].absolute == pytest.approx(1.0)  # twice the measured time
    assert report.rows[0].latencies["itl"].absolute == 0


def test_saturated_loads_have_a_total_of_their_own_and_a_request_weighs_the_same_in_any_run() -> None:
    few, many = a_run([0.1], "few"), a_run([0.1] * 3, "many")
    saturated = predicted(a_run([1.0]), [3.0], saturated=True)
    report = report_of([predicted(few, [0.2]), predicted(many, [0.1] * 3), saturated])
    over_all = {total.kind: total for total in report.totals if total.of is None}
    assert over_all["below saturation"].absolute["ttft"] == pytest.approx((1.0 + 3 * 0.0) / 4)
    assert over_all["saturated"].absolute["ttft"] == pytest.approx(2.0)  # 3 s for 1 s
    by_run = {total.of: total.absolute["ttft"] for total in report.totals if total.of}
    assert by_run == {"few": pytest.approx(1.0), "many": 0, "a": pytest.approx(2.0)}


@pytest.mark.parametrize(
    ("label", "queue_s", "saturated"),
    [("1/s", 0.02, False), ("1/s", 0.021, True), ("1/s", None, False), ("as many as go", None, True)],
)
def test_a_load_is_saturated_by_its_queue_or_label(label: str, queue_s: float | None, saturated: bool) -> None:
    run = a_run([0.1] * 3)  # TTFT, s
    requests = tuple(replace(each, queue_s=queue_s) for each in run.requests)
    queued = replace(run, requests=requests, parts=((label, 0, 3),))
    assert beside(queued, pd.DataFrame(index=range(3)))["saturated"].tolist() == [saturated] * 3


def test_an_experiment_without_requests_is_compared_by_the_statistics_that_it_has() -> None:
    measured = {"ttft_mean": 0.1, "ttft_p90": 0.2, "e2e_mean": 1.1}
    run = SummaryRun("s", Server("m", "H100"), "w", measured, 100, 11, rates=((1, 10),), assumed=())
    table = predicted(a_run([None] * 2), [0.1, 0.1]).requests.assign(predicted_itl=0.05, predicted_e2e=1.1)
    latencies = report_of([Prediction(run, table, "", "h100", ())]).rows[0].latencies
    assert latencies["ttft"].absolute == pytest.approx((0 + 0.5) / 2)  # of mean and P90
    assert latencies["ttft"].signed == 0
    assert latencies["itl"].measured["mean"] == pytest.approx((1.1 - 0.1) / (11 - 1))
    assert latencies["itl"].signed == pytest.approx(-0.5)


def test_errors_of_runs_without_calibration_come_first() -> None:
    used, unused = predicted(a_run([0.1], "used"), [0.2]), predicted(a_run([0.1], "unused"), [0.1])
    report = report_of([used, unused], calibrated=[("used", "host times")])
    assert [(total.of, total.held_out) for total in report.totals] == [
        ("unused", True),
        (None, True),  # over all unused runs
        ("used", False),
        (None, False),
    ]


def test_the_report_says_what_was_calibrated_and_assumed_and_which_run_failed() -> None:
    failed = Failed(run="b", reason="no room", log="b/measured_runs.log")
    report = report_of([predicted(a_run([0.1, None]), [0.11, 0.2])], [failed], [("a", "X")])
    assert [each.run for each in report.failed] == ["b"]
    _total, ttft, *_ = tables(report)
    assert ttft.rows[0][:4] == ("a *", "all", "– / 1", "100 / 110") and ttft.rows[0][-1] == "10.0 %"
    said = sentences(report)
    assert "* calibrated: X, on a" in said and "assumed of a: the sky is blue" in said


def test_the_known_error_of_a_model_names_what_was_compared() -> None:
    assert known_error("codellama_34b_instruct", "h100").startswith("mean absolute error against real runs")
    assert "codellama_34b_instruct: TTFT 3.2 %" in known_error("qwen2_5_14b", "h100")
    assert known_error("llama_3_1_8b", "b200") == "nothing on b200 was compared with a real run"
    for each in measured_errors():
        load_model(each.model)


@pytest.mark.parametrize("config", [False, True])
@pytest.mark.parametrize(("quantization", "weight"), [(None, 2), ("fp8", 1)])
def test_weights_are_as_the_server_made_them(tmp_path: Path, config: bool, quantization: str | None, weight: int):
    """The model is known by its name, or by its config.json, which is with the run."""
    known, server = load_model("llama_3_1_8b"), Server("meta-llama/Llama-3.1-8B", quantization=quantization)
    if config:
        (tmp_path / "config.json").write_text(json.dumps(LLAMA))
        server = replace(server, model="nobody/NoModel", config=tmp_path / "config.json")
    model, name, unknown = served_model("r", server, tmp_path)
    (decoder,) = model.stages.values()
    assert decoder == replace(known.stages["thinker"], weight_dtype_bytes=decoder.weight_dtype_bytes)
    assert (decoder.layer_dtype_bytes, model.max_model_len) == (weight, 131072 if config else known.max_model_len)
    assert name == "llama_3_1_8b" if not config and quantization is None else load_model(name).stages == model.stages
    assert isinstance(unknown, tuple)


def test_weights_of_an_unknown_format_are_refused(tmp_path: Path) -> None:
    server = Server("meta-llama/Llama-3.1-8B", quantization="awq")
    with pytest.raises(UserError, match=r"r served meta-llama/Llama-3\.1-8B quantised by awq"):
        served_model("r", server, tmp_path)


@pytest.mark.slow("replays measured runs")
def test_limits_that_nobody_set_are_those_of_vllm(monkeypatch) -> None:
    from vllm.engine import arg_utils
    from vllm.usage.usage_lib import UsageContext

    no = {"is_tpu": False, "is_cpu": False}
    for gpu in ("h100", "h200", "a100", "l40s", "a6000", "b200", "gb300", "rtx_pro_6000"):
        known = load_gpu(gpu)
        platform = {"get_device_total_memory": int(known.memory_bytes), "get_device_name": f"NVIDIA {gpu.upper()}"}
        answers = {name: lambda value=value: value for name, value in (platform | no).items()}
        monkeypatch.setattr(arg_utils, "current_platform", SimpleNamespace(**answers))
        tokens, seqs = arg_utils.EngineArgs.get_batch_defaults(1)
        api = UsageContext.OPENAI_API_SERVER
        assert batch_limits(known) == (seqs[api], tokens[api])


@pytest.mark.parametrize(
    ("server", "gpu", "expected"),
    [
        (Server("m"), "h100", (1024, 8192)),
        (Server("m", max_num_seqs=7), "l40s", (7, 2048)),
        (Server("m", max_num_batched_tokens=64), "h100", (64, 64)),
        (Server("m", max_num_seqs=2, max_model_len=100), "h100", (2, 200)),
    ],
)
def test_what_is_assumed_of_a_server_is_said(server, gpu, expected) -> None:
    model = load_model("llama_3_1_8b")
    facts, assumed = deployment(server, model, model.name, gpu, client_s=None)
    limits = facts["stages"]["thinker"]
    assert (limits["max_num_seqs"], limits["max_num_batched_tokens"]) == expected
    for name in ("max_num_seqs", "max_num_batched_tokens"):
        said = f"{name} is {limits[name]:,}, vLLM's default for its API server on this GPU ({gpu.upper()})."
        assert (said in assumed) == (getattr(server, name) is None)
    assert "What the client itself adds to a latency is not known; 0 ms is assumed." in assumed


@pytest.mark.slow("replays in other processes")
def test_a_stage_finds_the_prompts_that_earlier_stages_left_in_the_cache(tmp_path: Path) -> None:
    server = Server("meta-llama/Llama-2-7b-hf", "h100", kv_tokens=100_000)
    cold = SummaryRun("cold", server, "1/s", {}, 2000, 4, rates=((1, 20),), assumed=(), prompts=20)
    warm = replace(cold, name="warm", earlier=((2, 10),))  # 2 a second for 10 s: the same 20 prompts
    predictions, failed = predict([cold, warm], tmp_path, "h100")
    first, second = (each.requests for each in predictions)
    assert not failed and len(first) == len(second) == 20
    assert second["request"].tolist() == list(range(20))
    assert np.max(second["predicted_ttft"]) < 0.5 * np.min(first["predicted_ttft"])


@pytest.mark.parametrize(("e2e_s", "slower", "grows"), [(2.0, 0.0, False), (20.0, 0.0, False), (2.0, 0.2, True)])
def test_a_queue_that_grows_is_told_from_one_that_varies(e2e_s, slower, grows) -> None:
    """`slower`: how much longer the reply takes for each second that a request comes later."""
    loads, found = [(2.0, 120.0), (8.0, 120.0)], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        arrival = np.concatenate([np.sort(rng.uniform(0, 120, 240)), np.sort(rng.uniform(120, 240, 960))])
        e2e = rng.uniform(0.5, 1.5, len(arrival)) * e2e_s + slower * np.clip(arrival - 120, 0, None)
        found.append(queue_grows(pd.DataFrame({"arrival": arrival, "predicted_e2e": e2e}), loads))
    assert sum(each == grows for each in found) >= 19, "by chance one of many steady loads seems to grow"


@pytest.mark.parametrize(
    ("vllm", "stated", "expected"),
    [
        ("0.13.9", None, False),
        ("0.14.0", None, True),
        ("0.15.1", False, False),
        (None, None, True),
        ("v0.9", None, False),
    ],
)
def test_scheduling_is_asynchronous_as_stated_or_from_vllm_0_14_on(vllm, stated, expected) -> None:
    assert asynchronous(Server("m", vllm=vllm, async_scheduling=stated)) is expected


def test_nothing_is_begun_where_no_run_can_be_predicted(tmp_path: Path) -> None:
    run = MeasuredRun("r", Server("nobody/NoModel", "H100"), (), (("all", 0, 0),), None)
    with pytest.raises(UserError, match=r"^none of 2 runs can be predicted: r served nobody/NoModel, whose sizes"):
        predict([run, run], tmp_path, "h100")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow("replays measured runs")
def test_unknown_models_are_skipped_failed_replays_named_and_the_others_predicted(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("harness.measured_runs.predict.serve", falls_over)
    nobody = CONFIG.replace("meta-llama/Llama-3.1-8B", "nobody/NoModel")
    made = folder(
        **{f"{name}__traces.json": TRACES for name in ("nobody", "bad", "good", "own")},
        **{f"{name}__exp-config.yaml": CONFIG for name in ("bad", "good")},
        **{f"{name}__exp-config.yaml": nobody for name in ("nobody", "own")},
        **{"own__config.json": LLAMA},
    )
    out = tmp_path / "out"
    ran = CliRunner().invoke(build(NAMES), ["fidelity", "--measured-runs", str(made), "--out", str(out)])
    assert ran.exit_code == UNDECIDED
    assert "failed: bad: ArithmeticError: one and one is three; see" in ran.output
    assert (out / "bad" / "measured_runs.log").exists() and (out / "measured_runs.svg").exists()
    assert "skipped: nobody served nobody/NoModel, whose sizes are not known" in ran.output
    requests = pd.read_parquet(out / REQUESTS).set_index("run")
    assert set(requests.index) == {"good", "own"}
    assert requests.loc["own", "predicted_e2e"].tolist() == requests.loc["good", "predicted_e2e"].tolist()
