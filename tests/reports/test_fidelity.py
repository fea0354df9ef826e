from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from harness.calibration.fidelity_report import (
    DRIFT,
    MEASURED,
    MECHANICS,
    OTHER_RUN,
    REPORT,
    REQUESTS,
    Agreement,
    Load,
    Mechanics,
    Prediction,
    Report,
    RunFacts,
    agreement,
    canary_of,
    judge_mechanics,
    judge_prediction,
    load_report,
    moved,
)
from harness.experiments.provenance import environment
from harness.records.record import write_json
from reports.calibration.fidelity import HEADINGS, quoted, rows, sentences, write_picture
from reports.runs.measured import load_run
from tests.calibration.test_profile_file import FACTS
from tests.reports.served import bench, serve
from workloads.errors import UserError

REQUESTS_MADE = 40
SMALL = {"sessions": 2, "turns": 1, "deployment": "speech_tiny"}


def latencies(factor: float) -> pd.DataFrame:
    index = pd.MultiIndex.from_product([range(REQUESTS_MADE), [0]], names=["session", "turn"])
    tpot = factor * (0.005 + 0.0001 * np.arange(REQUESTS_MADE))
    return pd.DataFrame({"tpot": tpot, "e2e": 80 * tpot, "ttft": 4 * tpot}, index=index)


def by(factor: float, of: float = 1.0) -> Agreement:
    return agreement(latencies(of), latencies(factor), 500, 500)


def made(device: str = "cpu", noise: float = 1.04, mechanics: float = 1.0) -> Report:
    """The second real run took `noise` times as long as the first; each predicts the other."""
    fact = {"seconds": 30.0, "steps": 500, "requests": REQUESTS_MADE, "step_mean_s": 0.006, "host_share": 0.05}
    fact |= {"tpot_p50_s": 0.007, "e2e_p50_s": 0.5, "late_p50_s": 0.001, "late_p90_s": 0.002}
    run = RunFacts(**fact, canary=canary_of([0.0, 1.0], [0.004, 0.004], 30.0))
    met = [Mechanics(agreement=by(mechanics), matched=0.99, scheduled=by(1.01))] * 2
    predictions = [
        Prediction(source=OTHER_RUN, agreement=by(b, a), canary_ratio=1.0, scaled=by(b, a))
        for a, b in ((1.0, noise), (noise, 1.0))
    ]
    real = by(noise)
    verdicts = {
        "mechanics": judge_mechanics([one.agreement for one in met]),
        "prediction": judge_prediction([one.agreement for one in predictions], moved(real, 1.0)),
    }
    compared = {"mechanics": met, "prediction": predictions, "profile": [], "noise": real, "verdicts": verdicts}
    load = Load(share=0.7, rate=14.0, requests=REQUESTS_MADE, runs=[run] * 2, canary_moved=1.0, **compared)
    served = {"deployment": "llama_tiny", "model": "llama_tiny", "capacity": 20.0, "lengths": {}, "profile": None}
    when = {"date": "2026-01-31T00:00:00+00:00", "duration_s": 100.0, "quick": True}
    return Report(device=device, loads=[load], **served, **when, **environment())


def stored(folder: Path, report: Report) -> Path:
    folder.mkdir(parents=True)
    write_json(folder / REPORT, report.model_dump(mode="json"))
    tables = [
        latencies(factor).reset_index().assign(load=0.7, run=run, source=source)
        for run, own in ((1, 1.0), (2, 1.04))
        for source, factor in ((MEASURED, own), (MECHANICS, own), (OTHER_RUN, 2.04 - own))
    ]
    pd.concat(tables, ignore_index=True).to_parquet(folder / REQUESTS)
    times = pd.DataFrame({"at_s": np.arange(60.0) / 2, "value": 1.0, "load": 0.7})
    kinds = [times.assign(run=run, kind=kind) for run in (1, 2) for kind in ("steps", "canary")]
    pd.concat(kinds, ignore_index=True).to_parquet(folder / DRIFT)
    return folder


def test_a_stored_report_reads_back_and_a_damaged_one_is_refused(tmp_path: Path):
    folder = stored(tmp_path / "cpu", made())
    assert load_report(folder) == made().model_copy(update={"revision": load_report(folder).revision})
    (folder / REPORT).write_text('{"device": "cpu"}')
    with pytest.raises(UserError, match="fidelity"):
        load_report(folder)
    with pytest.raises(UserError, match="missing or damaged"):
        load_report(tmp_path)


def test_mechanics_prediction_and_noise_have_a_row_each():
    found = {row.what: row for row in rows(made())}
    assert [row.verdict for row in found.values()] == ["pass", "", "pass", "", ""]
    assert {len(row.values) for row in found.values()} == {len(HEADINGS)}
    assert found["mechanics"].values[0] == "0.0 %"
    assert found["prediction from the other run"].values[0] == found["noise: real against real"].values[0] == "4.0 %"


def test_sentences_have_the_verdict_and_its_reason():
    said = dict(sentences(made(noise=1.2)))
    assert said["mechanics"].startswith("at 70 % load pass: TPOT 0.0 %")
    assert "void" in said["prediction"] and "20.0 %" in said["prediction"]
    assert "TPOT 20.0 %" in said["noise"]


def test_mechanics_alone_decide():
    assert made(noise=1.5).passed
    assert not made(mechanics=1.1).passed


def test_a_report_of_real_execution_quotes_the_results_of_its_device(tmp_path: Path):
    run = load_run(serve(tmp_path / "run", bench(device="cpu", set=SMALL, seeds=[0])))
    stored(tmp_path / "fidelity" / "cuda", made("cuda"))
    assert quoted(run) == []
    stored(tmp_path / "fidelity" / "cpu", made())
    facts = quoted(run)
    assert [fact["label"] for fact in facts] == ["Fidelity, mechanics", "Fidelity, prediction", "Fidelity, noise"]
    assert all("llama_tiny on cpu, 2026-01-31" in fact["value"] for fact in facts)
    assert quoted(load_run(serve(tmp_path / "modelled", bench(seeds=[0])))) == []


@pytest.mark.parametrize("same", [True, False], ids=["this machine", "another"])
def test_a_replay_with_a_profile_quotes_the_results_of_its_machine(tmp_path: Path, same: bool):
    stored(tmp_path / "fidelity" / "cpu", made())
    machine = environment()["machine"] if same else FACTS["machine"]
    path = tmp_path / "profile.yaml"
    path.write_text(yaml.safe_dump({**FACTS, "model": "speech_tiny", "machine": machine}))
    run = load_run(serve(tmp_path / "run", bench(set=SMALL, seeds=[0], profile=str(path))))
    assert len(quoted(run)) == (3 if same else 0)


def test_the_picture_is_a_file_next_to_the_report(tmp_path: Path):
    path = write_picture(stored(tmp_path / "cpu", made()))
    assert path.read_text().lstrip().startswith("<?xml")
    assert path.with_suffix(".pdf").stat().st_size > 1000
