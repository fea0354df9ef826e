"""Live runs work without the engines, and replays without live runs: each in a tree that lacks the other."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_imports import ORDER, ROOT

IMPORT_ALL = """
import pkgutil, importlib, harness.live
for module in pkgutil.walk_packages(harness.live.__path__, "harness.live."):
    if module.name not in ("harness.live.locust.locustfile", "harness.live.null_server.__main__"):
        importlib.import_module(module.name)
"""  # Locust changes the interpreter when its file is loaded; the null server's main file runs it
ALONE = "import sys\nsys.meta_path[:] = [each for each in sys.meta_path if 'Editable' not in repr(each)]\n"
"""Of `sitecustomize`, which every process loads: an editable installation must not supply what the tree lacks."""
COMMAND = "from reports.cli import main; main()"


def run_in(tree: Path, code: str, *arguments: str) -> str:
    """Run Python in `tree`, in which alone it finds the product, and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "120"}
    command = [sys.executable, "-P", "-c", code, *arguments]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def without(tmp_path: Path, *folders: str) -> Path:
    """Return a copy of the product without these folders."""
    for package in (*ORDER, "rehearsal"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in folders:
        shutil.rmtree(tmp_path / folder)
    (tmp_path / "sitecustomize.py").write_text(ALONE)
    return tmp_path


def test_live_runs_need_no_engines(tmp_path: Path) -> None:
    tree = without(tmp_path, "engines", "harness/replays")
    run_in(tree, IMPORT_ALL)
    url = "ws://localhost:9/v1/realtime"
    assert "1 point" in run_in(tree, COMMAND, "live", url, "--sessions", "4", "--duration", "9", "--dry-run")


@pytest.mark.slow("runs a copy of the tree")
def test_replays_need_no_live_runs(tmp_path: Path) -> None:
    tree = without(tmp_path, "harness/live", "reports/live")
    settings = ("engine=liveserve", "c=2", "p=0", "sessions=2")
    chosen = [word for setting in settings for word in ("--set", setting)]
    out = run_in(tree, COMMAND, "run", "bench", *chosen, "--seeds", "1", "--out", "results")
    assert "liveserve" in out and (tree / "results" / "report.html").is_file()


def test_the_page_of_the_path_of_a_setting_names_functions_that_exist() -> None:
    page = (ROOT / "docs/architecture.md").read_text().partition("## The path of a setting")[2]
    rows = [row.split("|")[1:3] for row in page.partition("\n## ")[0].splitlines() if row.startswith("| `")]
    assert len(rows) == 10
    for file, functions in rows:
        text = (ROOT / file.strip(" `")).read_text()
        assert [name for name in re.findall(r"`(\w+)`", functions) if f"def {name}(" not in text] == [], file
