import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def commands(text: str) -> list[str]:
    """The make commands of a page's or a script's lines, without their comments."""
    return re.findall(r"^(?:[> ]*\$ )?(make [a-z-]+)(?= *(?:#.*)?$)", text, re.MULTILINE)


def test_ci_runs_the_command_that_readme_says_it_runs() -> None:
    (told,) = re.findall(r"\$ (make [a-z-]+) +# .*as CI runs them", README)
    assert commands((ROOT / ".ci" / "run").read_text()) == [told]
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    assert told in [step.get("run") for step in jobs["test"]["steps"]]


def steps_of(command: str, tmp_path: Path) -> list[str]:
    """Return what make would do in a checkout in which nothing was done before."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    done = subprocess.run([*command.split(), "--dry-run"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("command", ["make live", "make bench", "make test", "make test-all"])
def test_each_command_installs_its_environment_first(command: str, tmp_path: Path) -> None:
    assert command in commands(README)
    steps = steps_of(command, tmp_path)
    made = next(at for at, step in enumerate(steps) if " -m venv .venv" in step)
    installed = [at for at, step in enumerate(steps) if "pip install" in step]
    used = [at for at, step in enumerate(steps) if re.search(r"/bin/(rehearse|python -m pytest)\b", step)]
    assert used and made < min(installed) <= max(installed) < min(used)


@pytest.mark.parametrize("command", ["make nightly", "make bench DEVICE=cuda"])
def test_the_driver_is_asked_for_a_gpu_before_anything_is_installed(command: str, tmp_path: Path) -> None:
    # That engines/devices/gpu.py ends with status 2 without a GPU is tested in tests/cli/test_doctor.py.
    asked, made, *_ = [step for step in steps_of(command, tmp_path) if "gpu.py" in step or "-m venv" in step]
    assert asked.endswith("engines/devices/gpu.py") and made.endswith("-m venv .venv-cuda")
