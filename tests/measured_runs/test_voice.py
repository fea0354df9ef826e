"""`rehearse profile --from RUNS` of a server that speaks: its constants are fitted, or the runs are refused."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from engines.deployments import load_deployment
from engines.devices.step_file import Factor
from harness.measured_runs import folder as reader
from harness.measured_runs import voice as module
from harness.measured_runs.measured_run import MeasuredRun, Server, VoiceRun
from harness.measured_runs.voice import VoiceFit, fit_voice, loads_of
from harness.records.measured import RunFacts
from harness.replays.expand import point_of
from harness.replays.worker.replay import replay
from harness.request_tables.steady_window import Load
from tests.conftest import Rehearse
from workloads.errors import UserError
from workloads.registry import make_trace

BASE = "qwen3_omni_2gpu"
SERVER = """\
like: qwen3_omni_2gpu
codec:
  initial_codec_chunk_frames: {value: 6, source: a test}
stages:
  talker:
    host:
      host_s: {value: 0.008, source: a test}
overheads:
  preprocess_s: {value: 0.2, source: a test}
"""
USERS = {"sessions": 20, "turns": 2.0, "rate": 50.0, "reply_tokens": 8.0, "max_reply_tokens": 16, "p": 0.2}


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process takes seconds to begin."""
    monkeypatch.setattr(module, "workers", lambda log: ThreadPoolExecutor(1))


def a_record(c: int, deployment: str, **users: Any) -> Any:
    """As `rehearse live` would keep it of a server that is this deployment."""
    trace, client = make_trace("voice", USERS | users, seed=c), {"c": c, "stop_after_s": 60.0}
    point = point_of(trace, "vllm_omni", server={"deployment": deployment}, client=client, seed=c)
    run, kind, timing = replay(point, trace), point.setup.kind, Load(slots=c, stop_after_s=60.0)
    events, turns = run.events.to_pandas(), pd.DataFrame(trace.columns())
    requests = kind.requests(turns, events, timing)
    metrics = kind.metrics(turns, events, run.steps.to_pandas(), requests, run.run_end_s, timing)
    return SimpleNamespace(
        point=point,
        stored=RunFacts(run.run_end_s, timing).stored(),
        metrics={name: each.as_dict() for name, each in metrics.items()},
        trace=lambda: trace,
        table={"requests": requests, "events": events}.__getitem__,
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> VoiceRun:
    path = tmp_path_factory.mktemp("server") / "server.yaml"
    path.write_text(SERVER)
    records = tuple(a_record(c, str(path)) for c in (2, 4, 8))
    return VoiceRun("run", Server("", label="mine"), records, tuple(f"{c} at a time" for c in (2, 4, 8)))


@pytest.mark.slow("fits a server by replays")
def test_known_constants_are_found_and_left_out_loads_are_predicted_by_them(measured: VoiceRun) -> None:
    outer = replace(measured, records=measured.records[::2], labels=measured.labels[::2])

    fit = fit_voice([outer], BASE)

    found = {name: each.value for name, each in fit.constants.items()}
    assert (found["initial_codec_chunk_frames"], found["codec_chunk_frames"]) == (6, 25)
    assert found["preprocess_s"] == pytest.approx(0.2, rel=0.1)
    step_s = found["talker.host_s"] + 4 * (found["talker.host_s_per_request"] - 0.00042)  # of four requests
    assert step_s == pytest.approx(0.008, rel=0.1)
    before, held_out = (np.abs(fit.errors(of)).max(axis=0) for of in (fit.before, fit.held_out))
    assert before[0] > 0.4 and before[2] > 0.3
    assert held_out[0] < 0.06 and held_out[2] < 0.06
    assert "each measured load (2 at a time, 8 at a time)" in fit.deployment["known_error"]


def test_a_load_is_left_out_with_its_repeats(measured: VoiceRun, monkeypatch: pytest.MonkeyPatch) -> None:
    fits = []

    def to(self: Any, loads: Any) -> dict[str, Factor]:
        fits.append([load.name for load in loads])
        return {}

    monkeypatch.setattr(module._Fit, "to", to)
    monkeypatch.setattr(module._Fit, "replayed", lambda self, loads, tried: [[load.measured for load in loads]])
    again = replace(measured, name="again", records=measured.records[:1], labels=measured.labels[:1])
    fit = fit_voice([measured, again], BASE)
    assert fits == [
        ["run, 4 at a time", "run, 8 at a time"],
        ["run, 2 at a time", "again, 2 at a time", "run, 8 at a time"],
        ["run, 2 at a time", "again, 2 at a time", "run, 4 at a time"],
        [load.name for load in fit.loads],
    ]


def test_a_cut_reply_is_replayed_as_long_as_planned_and_a_whole_one_as_long_as_it_came(measured: VoiceRun) -> None:
    record = measured.records[2]
    requests, events = record.table("requests").copy(), record.table("events")
    whole = requests["status"] == "completed"
    requests.loc[whole, "audio_s"] *= 2
    cut = events.loc[~((events["session"] == 0) & (events["turn"] == 0) & (events["kind"] == "reply_done"))]
    tables = {"requests": requests, "events": cut}
    other = SimpleNamespace(**vars(record) | {"table": tables.__getitem__})

    (load,) = loads_of(replace(measured, records=(other,), labels=("8 at a time",)))

    turns = pd.DataFrame(record.trace().columns()).merge(requests, on=["session", "turn"], how="left")
    came = (turns["status"] == "completed").to_numpy() & (np.arange(len(turns)) > 0)
    np.testing.assert_allclose(load.columns["reply_audio_s"][came], turns["audio_s_y"][came])
    assert load.columns["reply_audio_s"][0] == pytest.approx(2 * turns["reply_audio_s"][0], rel=0.1)
    assert (load.columns["output_tokens"] >= 1).all()


@pytest.mark.parametrize(
    ("loads", "base", "said"),
    [
        (3, None, "^run is of a server that speaks; add --model with the deployment"),
        (3, "llama_8b_h100", "^--model llama_8b_h100 answers in text"),
        (1, BASE, "^one load .run, 2 at a time. cannot be left out"),
    ],
)
def test_runs_that_cannot_be_fitted_are_refused(loads: int, base: str | None, said: str, measured: VoiceRun) -> None:
    run = replace(measured, records=measured.records[:loads], labels=measured.labels[:loads])
    with pytest.raises(UserError, match=said):
        fit_voice([run], base)


def test_a_load_of_few_replies_is_refused(measured: VoiceRun) -> None:
    few = SimpleNamespace(**vars(measured.records[0]))
    few.metrics = few.metrics | {"rtf_p50": few.metrics["rtf_p50"] | {"n": 9}}
    with pytest.raises(UserError, match=r"^run, 2 at a time has 9 complete replies .* needs 10; measure longer"):
        fit_voice([replace(measured, records=(few, *measured.records[1:]))], BASE)


def test_runs_of_text_and_of_speech_are_refused_together(
    rehearse: Rehearse, measured: VoiceRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = MeasuredRun("typed", Server("m"), (), (), None)
    monkeypatch.setattr(reader, "text_and_voice", lambda path: ([text], [measured]))
    status, _, err = rehearse("profile", "--from", str(tmp_path), "--model", BASE)
    said = "runs of text (typed) and of speech (run); give the runs of one server"
    assert status == 2 and said in " ".join(err.split())


def test_a_fit_is_printed_and_written_as_a_deployment_that_others_can_be_like(
    rehearse: Rehearse, measured: VoiceRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    constants = {"talker.host_s": 0.007, "preprocess_s": 0.21, "initial_codec_chunk_frames": 6}
    made = {name: Factor(value=value, default=0.1, fitted_to="a test") for name, value in constants.items()}
    fit = module._Fit(BASE, load_deployment(BASE), "h100", ThreadPoolExecutor(1), lambda *_: None, 1)
    loads = list(loads_of(measured))
    seen = [load.measured for load in loads]
    monkeypatch.setattr(reader, "text_and_voice", lambda path: ([], [measured]))
    monkeypatch.setattr(module, "fit_voice", lambda *_: VoiceFit(BASE, fit.facts(made), loads, seen, seen, seen, made))

    status, out, err = rehearse("profile", "--from", str(tmp_path), "--model", BASE, "--out", "voice_fit.yaml")

    assert status == 0, err
    assert out.index("held-out loads") < out.index("all of them fitted") < out.index("constants")
    fitted = load_deployment("voice_fit.yaml")
    host, codec = fitted.stages["talker"].decoder, fitted.codec
    assert (host.host_s, fitted.overheads.preprocess_s, fitted.gpu.name) == (0.007, 0.21, "h100")
    assert host.host_s_per_request == 0.00042  # not fitted: the value of the base
    assert codec is not None and codec.initial_codec_chunk_frames == 6
    stages = "stages: {talker: {gpus: [1, 2]}, vocoder: {gpus: [1, 2]}}"
    Path("voice_two.yaml").write_text(f"like: voice_fit.yaml\n{stages}\n")
    status, _, err = rehearse("run", "bench", "--set", "deployment=voice_two.yaml", "--set", "c=4", "--dry-run")
    assert status == 0, err
