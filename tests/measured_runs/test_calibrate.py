"""`rehearse profile --from RUNS`: the factors of a server are fitted to its runs, or the runs are refused."""

import math
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from engines.devices.step_file import Calibrated, Compared, Errors, Factor, Factors, load_step_file, save_calibrated
from engines.models import load_model
from engines.server import ResolvedServer, ServerParams
from harness.measured_runs import calibrate as module
from harness.measured_runs.calibrate import Calibration, calibrate, errors_of, loads_of
from harness.measured_runs.folder import read_runs
from harness.measured_runs.measured_run import Measured, MeasuredRun, Request, Server, SummaryRun, slots_of
from harness.measured_runs.predict import plan, serve
from harness.replays.profiles import profile_of
from harness.replays.step_times import step_sources
from tests.conftest import Rehearse
from tests.measured_runs.test_prediction import LLAMA
from tests.measured_runs.test_requests import BENCH
from workloads.errors import UserError

SERVER = Server(
    "meta-llama/Llama-3.1-8B", "H100", max_num_seqs=64, max_num_batched_tokens=2048, vllm="0.20.0", label="mine"
)
RATES = (4.0, 8.0, 16.0, 24.0)
LIMITS = {"gpus": [[0]], "memory_share": 0.9, "max_num_seqs": 64, "max_num_batched_tokens": 2048}
LIMITS |= {"max_model_len": 4096, "max_tokens": 4096, "prefix_caching": True}
PATH = {name: {"value": 0.001, "source": "a test"} for name in ("preprocess_s", "hop_s", "orchestrator_s")}


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process takes seconds to begin."""
    monkeypatch.setattr(module, "workers", lambda log: ThreadPoolExecutor(1))


def a_profile(**values: float) -> Calibrated:
    """A profile of loads from 2 to 12 requests a second, with these factors."""
    usual = {"decode": 1.0, "prompt": 1.0, "host_s": 0.0, "host_s_per_request": 0.0}
    usual |= {"client_s": 0.002, "client_s_per_reply": 0.0}
    factors = {name: Factor(value=each, default=1.0, fitted_to="a test") for name, each in (usual | values).items()}
    compared = Compared(loads=["a"], before=Errors(ttft=0.2, itl=0.1, e2e=0.1), after=Errors(ttft=0, itl=0, e2e=0))
    facts: dict[str, Any] = {"model": "llama_3_1_8b", "gpu": "h100", "gpus": 1, "date": "2026-11-27", "server": "mine"}
    facts |= {"range": {"lowest_rate": 2, "highest_rate": 12, "lowest_in_flight": 1, "highest_in_flight": 9}}
    return Calibrated.model_validate(facts | {"factors": Factors(**factors), "held_out": compared, "fitted": compared})


def a_run(rates: tuple[float, ...], queue_s: float = 0.0, count: int = 32) -> MeasuredRun:
    """A run of `count` Poisson arrivals at each rate (1/s), 30 s apart, whose latencies nobody measured yet."""
    random, requests, parts, begin_s = np.random.default_rng(0), [], [], 0.0
    for rate in rates:
        arrivals = begin_s + np.cumsum(random.exponential(1 / rate, count))
        requests += [
            Request(float(at), int(random.integers(200, 1500)), int(random.integers(10, 40)), 1.0, 1.0, queue_s)
            for at in arrivals
        ]
        parts.append((f"{rate:g}/s", len(requests) - count, len(requests)))
        begin_s = float(arrivals[-1]) + 30
    return MeasuredRun("run", SERVER, tuple(requests), tuple(parts), None)


def served_by(profile: Calibrated | None, run: MeasuredRun, folder: Path) -> MeasuredRun:
    """Return the run as measured on a server with these factors; None: with those of the model."""
    facts = profile.model_dump(mode="json") if profile else None
    rows: list[Any] = []
    for load in loads_of(plan(run, folder, "h100", None), folder):
        found, _ = serve(load.deployment, load.columns, load.prefixes, "measured", facts)
        rows += found.to_dict("records")
    served = (
        replace(each, ttft_s=row["predicted_ttft"], e2e_s=row["predicted_e2e"])
        for each, row in zip(run.requests, rows, strict=True)
    )
    return replace(run, requests=tuple(served))


def accepted(profile: Any, server: dict[str, Any]) -> Any:
    """Return the profile that a replay on this server uses. UserError if it does not fit the server."""
    params = ServerParams.of(server)
    return profile_of(profile, "p.yaml", "virtual", params, ResolvedServer.of(params).deployment)


def test_known_factors_are_found_and_held_out_loads_are_predicted_by_them(tmp_path: Path) -> None:
    true = {"decode": 1.3, "prompt": 1.2, "host_s": 0.0004, "host_s_per_request": 2e-5, "client_s": 0.006}
    true |= {"client_s_per_reply": 0.002}
    found = calibrate([served_by(a_profile(**true), a_run(RATES), tmp_path)], None)
    made: Any = found.profile
    assert (made.model, made.gpu, made.gpus, made.server) == ("llama_3_1_8b", "h100", 1, "mine (vLLM 0.20.0)")
    assert [row.load.label for row in found.fitted] == ["run, 4/s", "run, 16/s"]
    assert [row.load.label for row in found.held_out] == ["run, 8/s", "run, 24/s"]
    assert made.held_out.before.itl > 0.2 and made.held_out.before.e2e > 0.2
    for errors in (made.held_out.after, made.fitted.after):
        assert max(errors.ttft, errors.itl, errors.e2e) < 0.05
    assert made.factors.decode.value == pytest.approx(1.3, rel=0.1)
    assert made.factors.prompt.value == pytest.approx(1.2, rel=0.15)
    assert made.factors.client_s_per_reply.value > 3 * made.factors.client_s_per_reply.default
    assert made.range.lowest_rate < 8 < 16 < made.range.highest_rate


def test_a_server_that_is_slow_by_its_host_is_not_taken_for_one_with_slow_kernels(tmp_path: Path) -> None:
    """Steps of 7 ms take 27: slower kernels would grow with the batch, and miss the held-out load."""
    run = served_by(a_profile(host_s=0.02), a_run((2.0, 6.0), count=16), tmp_path)
    made: Any = calibrate([run], None).profile
    assert made.factors.host_s.value == pytest.approx(0.02, rel=0.1)
    assert made.held_out.before.itl > 0.5 and made.held_out.after.itl < 0.05


def a_load(requests: list[Request], label: str, folder: Path) -> Any:
    """The only load of a run of such requests."""
    run = MeasuredRun("run", SERVER, tuple(requests), ((label, 0, len(requests)),), None)
    (load,) = loads_of(plan(run, folder, "h100", None), folder)
    return load


def test_no_more_are_in_flight_than_a_burst_has(tmp_path: Path) -> None:
    """Its 8 requests come at 100 a second and take 5 s each: 500 would be in flight if it went on."""
    load = a_load([Request(0.01 * at, 800, 30, 1.0, 5.0) for at in range(8)], "2/s", tmp_path)
    assert load.rate == pytest.approx(100) and load.in_flight == 8


def test_turns_of_a_session_follow_each_other_and_their_context_grows(tmp_path: Path) -> None:
    follow = {"think_s": 1.5, "prefix_tokens": 130}
    requests = [
        Request(0.0, 100, 30, 0.1, 0.5, session="a"),
        Request(0.2, 100, 30, 0.1, 0.5, session="b"),
        Request(2.0, 150, 30, 0.1, 0.6, session="a", prefix="a", **follow),
        Request(2.1, 160, 30, 0.1, 0.7, session="lost", prefix="lost", **follow),  # its first turn is missing
        Request(2.2, 170, 30, 0.1, 0.8, session="b", prefix="b", **follow),
    ]
    load = a_load(requests, "1/s", tmp_path)
    columns = load.columns
    assert columns["session"].tolist() == [0, 0, 1, 1, 2] and columns["turn"].tolist() == [0, 1, 0, 1, 0]
    np.testing.assert_array_equal(columns["arrival_s"], [0.0, np.nan, 0.2, np.nan, 2.1])
    assert columns["input_tokens"].tolist() == [100, 150 - 130, 100, 170 - 130, 160 - 130]
    assert load.prefixes == [("", 0), ("", 0), ("lost", 130)] and columns["think_s"][1] == 1.5


@pytest.mark.parametrize(
    ("label", "slots"),
    [
        ("8 at a time", 8),
        ("one at a time", 1),
        ("2/s, 16 at a time, seed 1", 16),
        ("4/s", None),
        ("8 requests at a time", None),
    ],
)
def test_a_label_says_how_many_are_served_at_once(label: str, slots: int | None) -> None:
    assert slots_of(label) == slots


def test_an_error_that_no_load_measured_is_missing_and_not_zero() -> None:
    measured = {"ttft": math.nan, "itl": 0.01, "e2e": 1.0}
    loads: Any = [SimpleNamespace(measured=measured)]
    errors = errors_of(loads, [{"ttft": 0.1, "itl": 0.011, "e2e": 1.0}])
    assert errors == Errors(ttft=None, itl=0.1, e2e=0)


def test_a_server_like_the_model_keeps_the_defaults(tmp_path: Path) -> None:
    found = calibrate([served_by(None, a_run(RATES[:2], count=8), tmp_path)], None)
    made, path = found.profile, tmp_path / "server.yaml"
    path.write_text(yaml.safe_dump(found.deployment | {"title": "the measured server"}))
    assert accepted(made, {"deployment": str(path)}) is made
    assert made.held_out.before == made.held_out.after == Errors(ttft=0, itl=0, e2e=0)
    for _, factor in made.factors:
        assert factor.value == pytest.approx(factor.default, abs=1e-9)


TWO_LOADS = a_run((2.0, 4.0))


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (a_run((2.0,)), "^one load .run, 2/s. cannot tell the factors"),
        (a_run((2.0, 4.0), queue_s=0.9), "^all 2 loads are saturated"),
        (replace(TWO_LOADS, parts=(("as many as go", 0, 32), ("4/s", 32, 64))), "^of 2 loads only one .run, 4/s"),
        (replace(TWO_LOADS, server=Server("nobody/knows", "H100")), "^run served nobody/knows, whose sizes"),
        (replace(TWO_LOADS, server=Server("meta-llama/Llama-3.1-8B")), "^run does not say on which GPU it ran; add"),
    ],
)
def test_runs_that_cannot_tell_the_factors_are_refused(run: MeasuredRun, said: str) -> None:
    with pytest.raises(UserError, match=said):
        calibrate([run], None)


def test_the_printed_command_runs_a_profile_on_its_server_also_with_a_second_replica(
    rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch, folder: Callable[..., Path]
) -> None:
    """A profile has the factors of one replica, so their number does not matter."""
    facts = {"title": "t", "model": "llama_3_1_8b", "gpu": "h100", "stages": {"thinker": LIMITS}, "overheads": PATH}
    monkeypatch.setattr(module, "calibrate", lambda *_: Calibration(a_profile(), facts, [], [], []))
    status, out, err = rehearse("profile", "--from", str(folder(**{"bench.json": BENCH})), "--out", "p.yaml")
    assert status == 0, err
    assert "rehearse run EXPERIMENT --set deployment=p-server.yaml --profile p.yaml" in " ".join(out.split())
    server = yaml.safe_load(Path("p-server.yaml").read_text())
    assert server["stages"]["thinker"]["gpus"] == [[0]]
    server["stages"]["thinker"]["gpus"] = [[0], [1]]
    Path("two.yaml").write_text(yaml.safe_dump(server))
    assert accepted(load_step_file("p.yaml"), {"deployment": "two.yaml"}) == a_profile()


def test_a_model_by_its_config_is_written_next_to_the_profile(rehearse: Rehearse, folder: Callable[..., Path]) -> None:
    many = {"input_lens": [400] * 6, "output_lens": [20] * 6, "ttfts": [0.04] * 6, "itls": [[0.01] * 19] * 6}
    bench = BENCH | many | {"model_id": "owner/Mine-7B", "errors": [""] * 6}
    slow = bench | {"request_rate": 1.0, "start_times": [0, 1, 2, 3, 4, 5]}
    fast = bench | {"request_rate": 2.0, "start_times": [0, 0.5, 1, 1.5, 2, 2.5]}
    runs = folder(**{"slow.json": slow, "fast.json": fast, "config.json": LLAMA})

    status, _, err = rehearse("profile", "--from", str(runs), "--gpu", "h100", "--out", "own.yaml")

    assert status == 0, err
    own, written = {"deployment": "own-server.yaml"}, load_step_file("own.yaml")
    model = ResolvedServer.of(ServerParams.of(own)).deployment.model
    assert model.name == "mine_7b" and model.stages == load_model("llama_3_1_8b").stages
    assert accepted(written, own) == written


def test_a_profile_is_read_as_it_was_written(tmp_path: Path) -> None:
    save_calibrated(a_profile(decode=1.5), tmp_path / "p.yaml")
    assert load_step_file(tmp_path / "p.yaml") == a_profile(decode=1.5)


def test_the_report_says_what_a_profile_was_fitted_to() -> None:
    server = ResolvedServer.of(ServerParams.of({"deployment": "llama_8b_h100"}))
    (said,) = step_sources(server, a_profile()).values()
    assert said.startswith("kernels of vLLM") and said.endswith(", fitted to 1 load of mine on 2026-11-27")


@pytest.mark.parametrize(
    ("change", "said"), [({"gpu": "h200"}, "is of gpu 'h100'"), ({"scale": "bandwidth=2.0"}, "leave one of them out")]
)
def test_a_profile_of_another_server_is_refused(change: dict[str, str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        accepted(a_profile(), {"deployment": "llama_8b_h100"} | change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gpus": 0}, "gpus"),
        ({"speed": 1}, "speed"),
        ({"schema_version": 9}, "newer than this version's 1"),
        ({"factors": {}}, "factors.decode"),
    ],
)
def test_bad_fields_of_a_profile_are_named(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(yaml.safe_dump(a_profile().model_dump(mode="json") | change))
    with pytest.raises(UserError, match=re.escape(said)):
        load_step_file(path)


@pytest.mark.parametrize(
    ("rate", "replicas", "said"),
    [
        (1.95, 1, "Extrapolated: the replay has 1.95 requests a second, and the loads had 2 to 12."),
        (1.96, 1, ""),  # 2 % of rounding and chance
        (12.24, 1, ""),
        (12.3, 1, "12.3 requests a second"),
        (24.0, 2, ""),
        (3.0, 2, "1.5 requests a second for each of 2 replicas"),
    ],
)
def test_a_rate_outside_of_the_loads_is_extrapolated(rate: float, replicas: int, said: str) -> None:
    found = a_profile().extrapolated(rate, replicas)
    assert said in found and bool(said) == bool(found)


TURNS = pd.DataFrame({"session": [0, 0, 1], "turn": [0, 1, 0], "modality": "text", "input_tokens": [10, 20, 30]})
REQUESTS = TURNS[["session", "turn"]].assign(
    spoken=False,
    generated_entry=pd.array([5, 6, None], "Int64"),
    turn_end_s=[0.0, 3.0, 1.0],
    ttft_s=[0.1, 0.2, np.nan],
    e2e_s=[0.5, 0.6, np.nan],
)
PROMPTS = TURNS[["session", "turn"]].head(2).assign(kind="prompt", value=[13.0, 43.0])


def live_record(path: Path) -> Any:
    """The record of a load whose rate is the name of its folder; the server states the prompts of a load of 1/s."""
    rate = float(path.name)
    params = {"client_params": {"c": None}, "workload_params": {"rate": rate}, "server_params": {"model": "m"}}
    return SimpleNamespace(
        folder=path,
        manifest={"status": "ok", "started": f"{9 - rate}"},
        point=SimpleNamespace(seed=0, **params),
        trace=lambda: SimpleNamespace(columns=lambda: TURNS.assign(output_tokens=9, history_tokens=np.nan)),
        table=lambda name: REQUESTS if name == "requests" else PROMPTS[: 2 if rate == 1 else 0],
    )


def test_a_live_run_is_one_run_whose_loads_are_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.measured_runs.folder.load_record", live_record)
    (tmp_path / "experiment.json").write_text('{"device": "live", "label": "build 7"}')
    for rate in ("1", "2"):
        (tmp_path / "points" / rate).mkdir(parents=True)
    (run,) = read_runs(tmp_path)
    assert isinstance(run, MeasuredRun) and (run.server.model, run.server.label) == ("m", "build 7")
    assert run.parts == (("2/s", 0, 3), ("1/s", 3, 6))  # in the order of their start
    first, other, later = run.requests[:3]
    assert (first.prompt_tokens, first.output_tokens, first.ttft_s, first.prefix) == (10, 5, 0.1, None)
    assert (later.prompt_tokens, later.prefix_tokens, later.prefix) == (10 + 5 + 20, 10 + 5, "0/0")
    assert (first.session, first.think_s, later.session, later.think_s) == ("0/0", None, "0/0", 3.0 - 0.5)
    assert (other.output_tokens, other.e2e_s) == (9, None)
    assert [(each.prompt_tokens, each.prefix_tokens) for each in run.requests[3:]] == [(13, 0), (30, 0), (43, 18)]
    monkeypatch.setitem(globals(), "REQUESTS", REQUESTS.assign(spoken=True))
    with pytest.raises(UserError, match="give a run of text"):
        read_runs(tmp_path)


@pytest.mark.parametrize(
    ("measured", "held_s", "first", "last"),
    [
        ({"e2e_mean": 5.0, "ttft_mean": 0.1}, 600.0, 30.0, 75.0),  # the steady middle of 60 s, after 10 s of prompts
        ({"e2e_mean": 5.0, "ttft_mean": 0.1}, 10.0, 20.0, 30.0),  # no load has a steady middle: all of it
        ({"ttft_mean": 0.1}, 600.0, 20.0, 80.0),  # nobody says how long a reply takes
    ],
)
def test_means_are_judged_when_each_prompt_is_in_the_cache(
    measured: Measured, held_s: float, first: float, last: float, tmp_path: Path
) -> None:
    run = SummaryRun("s", SERVER, "w", measured, 100, 11, rates=((4.0, held_s),), assumed=(), prompts=40)
    (load,) = loads_of(plan(run, tmp_path, "h100", None), tmp_path)
    counted, arrival = load.counted["ttft"], load.columns["arrival_s"]
    # 40 prompts at 4 a second: after 10 s each is in the cache
    assert {name for name, _ in load.prefixes[:40]} == {f"prompt {i}" for i in range(40)}
    assert counted.any() and not counted[:40].any()
    assert (counted == ((arrival >= first) & (arrival <= last))).all()
