from pathlib import Path

import pytest

from engines.devices.kernels.choose import shipped
from engines.devices.kernels.grids import save_kernels
from engines.devices.profile import load_profile
from engines.server import ServerParams
from harness.calibration import profiling
from harness.exit_status import FAULT
from harness.replays.worker.fresh_process import FreshProcessFailed
from tests.conftest import Rehearse


def test_a_measured_profile_is_written_and_used_by_its_command(rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch):
    def in_this_process(device: str, model: str, quick: bool, show: profiling.Show) -> profiling.Measured:
        return profiling.measure("virtual", ServerParams.model_validate({"deployment": model}), quick, show)

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


@pytest.mark.slow("replays a bench card and writes its report")
def test_a_run_by_kernels_of_a_file_says_so_in_its_report(rehearse: Rehearse):
    """The file is what `rehearse profile --from aiconfigurator --model llama_3_1_70b --gpu h100` writes."""
    kernels = shipped("llama_3_1_70b", "h100")
    assert kernels is not None
    save_kernels(kernels, Path("kernels.yaml"))
    Path("e.yaml").write_text(
        "{name: e, engines: [vllm_omni_wo], workload: poisson, "
        "set: {deployment: llama_70b_4xh100, modality: text, reply: text, requests: 2}}"
    )
    status, _, err = rehearse("run", "e.yaml", "--profile", "kernels.yaml")
    assert status == 0, err
    page = Path("results/e/report.html").read_text()
    assert "from the file given: kernels of vLLM" in page and "Error against real servers" in page
