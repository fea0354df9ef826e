"""What a first look at the program loads: lists, help and mistakes answer before anything that a run needs is imported.

Modules are counted and not seconds, which are the machine's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

NEVER = {"matplotlib", "pandas", "scipy", "torch", "vllm"}
"""What takes longest to import. All but lists and help of a workload's parameters also go without:"""
WITH_TRACES = {"numpy", "pyarrow"}
MOST = 150
"""Modules of ours: a run in virtual time has about 190."""

PROGRAM = """
import atexit, json, sys

def tell():
    tops = {name.partition(".")[0] for name in sys.modules}
    ours = [name for name in sys.modules if name.startswith("rehearsal.")]
    print(json.dumps([sorted(tops), len(ours)]), file=sys.stderr)

atexit.register(tell)
from rehearsal.reports.cli import main
main()
"""


def loaded(arguments: Sequence[str], folder: Path) -> tuple[int, str, set[str], int]:
    """Exit status, what it said, the packages that it loaded, and how many modules of ours."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, cwd=folder
    )
    *said, told = done.stderr.splitlines()
    packages, ours = json.loads(told)
    return done.returncode, done.stdout + "\n".join(said), set(packages), ours


def test_lists_and_help_load_nothing_that_a_run_needs(tmp_path: Path) -> None:
    for arguments in (
        ["--help"],
        ["run", "--help"],
        ["--version"],
        ["list"],
        ["list", "engines"],
        ["list", "engines", "liveserve"],
        ["list", "workloads"],
        ["list", "devices"],
        ["list", "deployments"],
        ["list", "cards"],
    ):
        status, said, packages, ours = loaded(arguments, tmp_path)
        assert (status, packages & (NEVER | WITH_TRACES)) == (0, set()), (arguments, said)
        assert said and ours < MOST, arguments
        if len(arguments) == 1 and arguments[0].startswith("--"):  # typer itself loads it for a command
            assert "pydantic" not in packages, arguments


@pytest.mark.parametrize("workload", ["voice", "servegen", "burstgpt", "offline", "metronome"])
def test_the_parameters_of_a_workload_load_nothing_that_draws_or_reads(workload: str, tmp_path: Path) -> None:
    status, said, packages, ours = loaded(["list", "workloads", workload], tmp_path)
    assert (status, packages & NEVER) == (0, set())
    assert "network_ms" in said and ours < MOST


@pytest.mark.parametrize(
    ("arguments", "words", "allowed"),
    [
        (["rum", "bench"], "'run'", set()),
        (["list", "engin"], "'engines'", set()),
        (["run", "benhc"], "'bench'", set()),
        (["run", "bad.yaml"], "not valid YAML", set()),
        (["run", "odd.yaml"], "'grids'", set()),
        (["run", "bench", "--set", "engine=livserve"], "'liveserve'", set()),
        (["run", "bench", "--set", "sesions=3"], "'sessions'", WITH_TRACES),
        (["run", "bench", "--set", "p=often"], "'often'", WITH_TRACES),
        (["serve", "livserve"], "'liveserve'", set()),
        (["trace", "make", "voise", "--out", "t"], "'voice'", set()),
        (["claims", "liveserv"], "'liveserve'", set()),
    ],
)
def test_a_mistake_is_told_before_anything_is_loaded_that_a_run_needs(
    arguments: list[str], words: str, allowed: set[str], tmp_path: Path
) -> None:
    (tmp_path / "bad.yaml").write_text("name: [")
    (tmp_path / "odd.yaml").write_text("{name: mine, engines: [liveserve], workload: voice, grids: {c: [4]}}")
    status, said, packages, ours = loaded(arguments, tmp_path)
    assert status == 2 and words in said
    assert packages & (NEVER | WITH_TRACES) <= allowed
    assert ours < MOST
