import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import typer

from engines.deployments import available
from harness import calibration
from reports.cli import run
from tests.builders import settings
from tests.conftest import Rehearse
from tests.reports import served
from tests.reports.written import Fails, never

ROOT = Path(__file__).parents[2]
NIGHTS = Path("results/nightly")
NIGHTLY = ("nightly", "--device", "virtual")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """The bench is filled by scripted servers, `slower` times as slow, instead of being run."""

    def measured(slower: float = 1.0, fails: Fails = never, **changes: Any) -> None:
        def stand_in(source: str, *, device: str, out: Path, seeds: int, **_: object) -> None:
            assert source == "bench"
            experiment = served.bench(**{"grid": {"c": [8]}, "seeds": list(range(seeds)), **changes})
            with monkeypatch.context() as patch:
                patch.setattr(served, "TTFP_S", {name: slower * s for name, s in served.TTFP_S.items()})
                shutil.rmtree(out, ignore_errors=True)
                served.serve(out, experiment, fails)
            raise typer.Exit(0)

        monkeypatch.setattr(run, "run", stand_in)

    measured()
    return measured


def verdict(night: Path) -> dict:
    return json.loads((night / "verdict.json").read_text())


@pytest.fixture
def fidelity(measured: Callable, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable], None]:
    """Puts a stand-in in the place of `harness.calibration.fidelity.fidelity`; every device is there."""
    module: Any = ModuleType("harness.calibration.fidelity")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(calibration, "fidelity", module, raising=False)
    monkeypatch.setattr(available, "missing", lambda device: None)
    return lambda stand_in: setattr(module, "fidelity", stand_in)


def tonight() -> Path:
    return max(NIGHTS.iterdir())


@pytest.fixture
def yesterday(rehearse: Rehearse, measured: Callable) -> Path:
    """An earlier night that passed."""
    assert rehearse(*NIGHTLY)[0] == 0
    return tonight().rename(NIGHTS / "2020-01-01-virtual")


def test_the_first_night_is_compared_with_none_and_passes(rehearse: Rehearse, measured: Callable) -> None:
    status, out, _ = rehearse(*NIGHTLY)
    assert status == 0 and "this one is the first" in out
    kept = verdict(tonight())
    assert kept["passed"] and kept["device"] == "virtual" and kept["revision"].keys() >= {"commit", "dirty"}
    verdicts = {name: part["verdict"] for name, part in kept["parts"].items()}
    assert verdicts == {"bench": "passed", "fidelity": "not needed", "comparison": "void"}
    assert (tonight() / "bench" / "summary.json").is_file()


def test_a_night_as_good_as_the_last_passes(rehearse: Rehearse, measured: Callable, yesterday: Path) -> None:
    measured(slower=1.05)
    status, out, _ = rehearse(*NIGHTLY)
    assert status == 0 and f"A: {yesterday}/bench" in out
    assert verdict(tonight())["parts"]["comparison"]["verdict"] == "passed"
    assert rehearse(*NIGHTLY, "--fail-above", "4")[0] == 1


def test_a_failed_night_is_compared_with_on_request(rehearse: Rehearse, measured: Callable, yesterday: Path) -> None:
    measured(slower=1.5)
    status, out, _ = rehearse(*NIGHTLY)
    assert status == 1 and "audio_ttfp_p50 of vllm_omni c=8 got worse by 50.0%" in " ".join(out.split())
    assert not verdict(tonight())["passed"]
    failed = tonight().rename(NIGHTS / "2020-01-02-virtual")
    assert rehearse(*NIGHTLY)[0] == 1  # the night that failed is not what the next one is measured by
    assert rehearse(*NIGHTLY, "--against", f"{failed}/bench")[0] == 0
    tonight().rename(NIGHTS / "2020-01-03-virtual")
    assert rehearse(*NIGHTLY)[0] == 0


def test_a_failed_point_fails_the_night(rehearse: Rehearse, measured: Callable) -> None:
    measured(fails=lambda point: point.seed == 1 and point.engine == "liveserve")
    status, out, _ = rehearse(*NIGHTLY)
    assert status == 1 and "1 of 6 points failed" in out and "liveserve c=8 seed=1" in out


def test_a_night_with_another_workload_is_not_compared(rehearse: Rehearse, measured: Callable, yesterday: Path) -> None:
    measured(set={"sessions": 7, "turns": 2}, slower=2.0)
    status, out, _ = rehearse(*NIGHTLY)
    assert status == 0 and "served different traces" in " ".join(out.split())
    assert rehearse(*NIGHTLY, "--against", f"{yesterday}/bench")[0] == 2  # the comparison was asked for


@pytest.mark.parametrize(("mechanics", "prediction", "status"), [("pass", "miss", 0), ("fail", "pass", 1)])
def test_a_night_on_a_real_device_fails_by_the_mechanics_and_not_by_the_prediction(
    rehearse: Rehearse, fidelity: Callable, mechanics: str, prediction: str, status: int
) -> None:
    def found(device: str, *, out: Path, quick: bool, show: Callable) -> SimpleNamespace:
        assert (device, out, quick) == ("cpu", tonight() / "fidelity", False)
        verdicts = {
            "mechanics": SimpleNamespace(result=mechanics, why="TPOT 0.4 %"),
            "prediction": SimpleNamespace(result=prediction, why="TPOT error 7 %"),
        }
        return SimpleNamespace(passed=mechanics == "pass", loads=[SimpleNamespace(share=0.7, verdicts=verdicts)])

    fidelity(found)
    assert rehearse("nightly", "--device", "cpu")[0] == status
    part = verdict(tonight())["parts"]["fidelity"]
    assert part["verdict"] == ("failed" if status else "passed")
    why = [f"mechanics: {mechanics}; TPOT 0.4 %", f"prediction: {prediction}; TPOT error 7 %"]
    assert part["why"] == [f"70% load, {each}" for each in why]


def test_a_fidelity_that_breaks_off_fails_the_night(rehearse: Rehearse, fidelity: Callable) -> None:
    def breaks_off(device: str, **_: object) -> None:
        raise ValueError("the server was never saturated")

    fidelity(breaks_off)
    status, out, _ = rehearse("nightly", "--device", "cpu")
    assert status == 1 and "the server was never saturated" in out
    assert not verdict(tonight())["passed"]


def test_nights_of_another_device_are_left_out(rehearse: Rehearse, measured: Callable, yesterday: Path) -> None:
    (yesterday / "verdict.json").write_text(json.dumps({**verdict(yesterday), "device": "cuda"}))
    measured(slower=2.0)
    assert rehearse(*NIGHTLY)[0] == 0


def test_a_missing_device_is_named_and_leaves_nothing(rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(available, "missing", lambda device: f"device {device} needs an NVIDIA GPU")
    status, out, err = rehearse("nightly")
    assert (status, out, len(err.splitlines())) == (2, "", 1) and "device cuda needs an NVIDIA GPU" in err
    assert not Path("results").exists()


def test_a_damaged_verdict_is_named(rehearse: Rehearse, yesterday: Path) -> None:
    (yesterday / "verdict.json").write_text("{")
    status, _, err = rehearse(*NIGHTLY)
    assert status == 2 and "2020-01-01-virtual/verdict.json is damaged" in err


@pytest.mark.slow("a small nightly run")
def test_a_real_night_in_virtual_time(rehearse: Rehearse) -> None:
    chosen = settings("engine=vllm_omni", "c=2", "p=0", "sessions=2", "turns=2")
    assert rehearse(*NIGHTLY, "--quick", *chosen)[0] == 0
    tonight().rename(NIGHTS / "2020-01-01-virtual")
    status, out, _ = rehearse(*NIGHTLY, "--quick", *chosen)
    assert status == 0 and "no metric of 1 cells is worse" in " ".join(out.split())
