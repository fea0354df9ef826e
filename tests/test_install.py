"""The wheel and the source distribution hold the four folders and `rehearsal`; the wheel calls servers without vLLM."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from harness.serving import ServeConfig, ServerProcess

pytestmark = pytest.mark.slow("builds and installs the wheel")
ROOT = Path(__file__).parents[1]
FOLDERS = ("workloads", "engines", "harness", "reports", "rehearsal")
MOST_MB = 600
"""Of the light environment: pyarrow takes 165, NumPy, SciPy and pandas 210, Matplotlib with its fonts and images 80."""


def run(*command: str | Path, cwd: Path, status: int = 0) -> str:
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the source distribution of the commit, and that distribution."""
    folder = tmp_path_factory.mktemp("built")
    run("git", "clone", "--quiet", ROOT, "source", cwd=folder)
    run(sys.executable, "-m", "venv", "builder", cwd=folder)
    run("builder/bin/python", "-m", "pip", "install", "--quiet", "build", cwd=folder)
    run("builder/bin/python", "-m", "build", "--outdir", "dist", "source", cwd=folder)
    return folder / "dist"


@pytest.fixture(scope="module")
def light(built: Path) -> Path:
    """An environment of its own with the wheel and the lock of the extra `live`."""
    folder = built.parent
    run(sys.executable, "-m", "venv", "light", cwd=folder)
    (wheel,) = built.glob("*.whl")
    lock = ROOT / "requirements" / "live.txt"
    pip = ("light/bin/python", "-m", "pip")
    install = (*pip, "install", "--quiet", "--no-compile", "--no-deps")
    run(*install, "--require-hashes", "-r", lock, cwd=folder)
    run(*install, wheel, cwd=folder)
    run(*pip, "check", cwd=folder)
    return folder / "light"


def test_the_wheel_and_the_source_hold_all_files_of_the_five_folders(built: Path):
    tracked = run("git", "ls-files", *FOLDERS, cwd=built.parent / "source").splitlines()
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert {name.partition("/")[0] for name in names} == set(FOLDERS)
    assert {*tracked} <= names
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {*tracked} <= inside


def test_the_light_environment_is_light(light: Path):
    (packages,) = light.glob("lib/python*/site-packages")
    there = {path.name for path in packages.iterdir()}
    assert not {"torch", "vllm"} & there and {*FOLDERS} <= there
    size = sum(path.stat().st_size for path in packages.rglob("*") if path.suffix != ".pyc" and path.is_file())
    assert size / 1e6 < MOST_MB


def test_the_wheel_alone_lists_and_says_what_a_run_lacks(light: Path, tmp_path: Path):
    rehearse = light / "bin" / "rehearse"
    for kind in ("engines", "workloads", "deployments", "cards"):
        assert run(rehearse, "list", kind, cwd=tmp_path)
    assert "-m pip install 'rehearsal-bench[cpu]'" in run(rehearse, "run", "bench", "--quick", cwd=tmp_path, status=2)
    assert "measures" in run(rehearse, "claims", "nova", cwd=tmp_path, status=2)


def test_the_wheel_alone_synthesises_callers_without_a_network(light: Path, tmp_path: Path):
    code = (
        "import socket; socket.socket.connect = None\n"
        "from workloads.audio.voice import sentences\n"
        "print(sum(len(sentence.pcm(16_000)) > 0 for sentence in sentences()), len(sentences()))\n"
    )
    there, all_of_them = run(light / "bin" / "python", "-c", code, cwd=tmp_path).split()
    assert there == all_of_them and int(there) > 100


def test_the_wheel_alone_calls_a_server_and_reports_and_compares(light: Path, tmp_path: Path):
    rehearse = light / "bin" / "rehearse"
    with ServerProcess(ServeConfig.model_validate({"engine": "liveserve", "port": 0})) as server:
        load = ("--sessions", "2", "--duration", "20", "--seed", "0", "--workload", "voice")
        short = ("--set", "turns=1", "--set", "utterance_s=0.5", "--set", "max_reply_tokens=4")  # some end in any 20 s
        call = (rehearse, "live", server.url, *load, *short, "--set", "send_delay_limit_ms=2000")
        out = run(*call, "--out", "a", cwd=tmp_path, status=3)
    assert "INCONCLUSIVE" in out  # of so few turns
    (row,) = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert row["status"] == "ok", out
    assert row["metrics"]["audio_ttfp_p50"]["value"] > 0
    assert "<svg" in (tmp_path / "a" / "report.html").read_text()
    run(rehearse, "report", "a", cwd=tmp_path)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert "endpoint" in run(rehearse, "compare", "a", "b", cwd=tmp_path)
