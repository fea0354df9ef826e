"""`rehearse profile` and `rehearse run --profile`: what is refused, what is written, which command comes next."""

from pathlib import Path

import pytest
import yaml

from engines.devices.kernels.choose import shipped
from engines.devices.kernels.grids import save_kernels
from engines.devices.profile import load_profile
from engines.server import ServerParams
from harness.calibration import profiling
from harness.exit_status import FAULT
from harness.replays.worker.fresh_process import FreshProcessFailed
from tests.calibration.test_profile_file import FACTS
from tests.conftest import Rehearse


def test_a_measured_profile_is_written_with_its_page_and_used_by_the_command_it_names(
    rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch
):
    """Measured on the modelled device, in this process: how the command line uses a measurement is what is tested."""

    def in_this_process(device: str, model: str, quick: bool, show: profiling.Show) -> profiling.Measured:
        return profiling.measure("virtual", ServerParams(deployment=model), quick, show)

    monkeypatch.setattr(profiling, "profile", in_this_process)
    monkeypatch.setattr(profiling, "LIMIT_S", {True: 1e6})  # of virtual time
    status, out, err = rehearse("profile", "--device", "cpu", "--model", "speech_tiny", "--quick", "--out", "d/p.yaml")
    assert status == 0, err
    for words in ("conserve", "segmented", "held-out median", "drift", "flag to end"):
        assert words in " ".join(out.split()), out
    made = load_profile("d/p.yaml", "speech_tiny")
    assert made.stages.keys() == {"thinker", "talker"}
    assert made.packages and made.machine["cpu"] and made.date
    names = {path.name for path in Path("d").iterdir()}
    pictures = {f"p-{stage}-residuals.{kind}" for stage in made.stages for kind in ("svg", "pdf")}
    assert names == {"p.yaml", "p.html", "p.samples.parquet"} | pictures
    page = Path("d/p.html").read_text()
    assert "<svg" in page and "speech_tiny" in page and "http" not in page.replace("http://www.w3.org", "")
    (command,) = (line.split(maxsplit=2)[2] for line in out.splitlines() if line.startswith("next"))
    status, out, _ = rehearse(*command.split(), "--set", "sessions=2", "--dry-run")
    assert status == 0 and "points" in out


def test_a_failed_measurement_says_so(rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise FreshProcessFailed("ended with status -9")

    monkeypatch.setattr(profiling, "profile", fail)
    status, _, err = rehearse("profile", "--device", "cpu", "--model", "llama_tiny")
    assert status == FAULT and "status -9" in err and not list(Path.cwd().iterdir())


def test_a_run_refuses_a_profile_of_another_model_or_for_a_real_device(rehearse: Rehearse):
    Path("p.yaml").write_text(yaml.safe_dump(FACTS))
    run = ("run", "bench", "--set", "deployment=speech_tiny", "--profile", "p.yaml", "--dry-run")
    status, _, err = rehearse(*run)
    assert status == 2 and "'llama_tiny'" in err and "--model speech_tiny" in err
    status, _, err = rehearse(*run, "--device", "cpu")
    assert status == 2 and "device virtual" in err


EXPERIMENT = """\
name: e
engines: [vllm_omni_wo]
workload: poisson
set: {deployment: llama_70b_4xh100, modality: text, reply: text, requests: 2}
"""


@pytest.fixture
def kernels_file() -> str:
    """As a user has it from `rehearse profile --from aiconfigurator --model llama_3_1_70b --gpu h100`."""
    kernels = shipped("llama_3_1_70b", "h100")
    assert kernels is not None
    save_kernels(kernels, Path("llama_3_1_70b-h100.yaml"))
    return "llama_3_1_70b-h100.yaml"


def test_a_run_by_kernels_of_a_file_says_so_in_its_report(rehearse: Rehearse, kernels_file: str):
    Path("e.yaml").write_text(EXPERIMENT)
    status, _, err = rehearse("run", "e.yaml", "--profile", kernels_file)
    assert status == 0, err
    page = Path("results/e/report.html").read_text()
    assert "from the file given: kernels of vLLM" in page and "Error against real servers" in page


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("gpu=h200",), ("is of gpu 'h100'", "runs on gpu 'h200'")),
        (("deployment=llama_8b_h100",), ("is of model 'llama_3_1_70b'",)),
        (("step_times=roofline",), ("leave one of them out",)),
    ],
)
def test_a_run_refuses_kernels_of_another_model_or_gpu(rehearse: Rehearse, kernels_file: str, settings, words):
    Path("e.yaml").write_text(EXPERIMENT)
    changed = [part for setting in settings for part in ("--set", setting)]
    status, _, err = rehearse("run", "e.yaml", "--profile", kernels_file, *changed, "--dry-run")
    assert status == 2 and all(word in err for word in words), err
