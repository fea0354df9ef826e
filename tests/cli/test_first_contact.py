"""Lists, help and mistakes answer before anything that only a run needs is imported.

Modules are counted, not seconds. The commands of a test share a process: all of them load no more than each may.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

NEVER = {"matplotlib", "pandas", "scipy", "torch", "vllm"}
"""What takes longest to import. All but lists and help of a workload's parameters also go without:"""
WITH_TRACES = {"numpy", "pyarrow"}
MOST = 170
"""Modules of ours: a run in virtual time has about 190."""

PROGRAM = """
import contextlib, io, json, sys
from reports.cli import main

for arguments in json.loads(sys.argv[1]):
    sys.argv, said, status = ["rehearse", *arguments], io.StringIO(), None
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as end:
            status = end.code
    tops = {name.partition(".")[0] for name in sys.modules}
    own = ("engines.", "harness.", "rehearsal.", "reports.", "workloads.")
    ours = [name for name in sys.modules if name.startswith(own)]
    print(json.dumps([status, said.getvalue(), sorted(tops), len(ours)]))
"""

KINDS = ("engines", "engines liveserve", "workloads", "devices", "deployments", "cards")
LISTS = ["run --help", "trace make --help", "list", *(f"list {kind}" for kind in KINDS)]
PARAMETERS = [f"list workloads {name}" for name in ("voice", "servegen", "burstgpt", "offline", "metronome")]
RUNS = [f"run {wrong}" for wrong in ("benhc", "bad.yaml", "odd.yaml", "bench --set engine=livserve")]
MISTAKES = ["rum bench", "list engin", *RUNS, "serve livserve", "trace make voise --out t", "claims liveserv"]


@pytest.mark.parametrize(
    ("commands", "ends", "without"),
    [
        pytest.param(["--help", "--version"], 0, NEVER | WITH_TRACES | {"pydantic"}, id="help"),
        pytest.param(LISTS, 0, NEVER | WITH_TRACES, id="lists"),
        pytest.param(PARAMETERS, 0, NEVER, id="parameters"),
        pytest.param(MISTAKES, 2, NEVER | WITH_TRACES, id="mistakes"),
        pytest.param(["run bench --set sesions=3", "run bench --set p=often"], 2, NEVER, id="mistakes of workloads"),
    ],
)
def test_a_first_look_imports_nothing_heavy(commands: list[str], ends: int, without: set[str], tmp_path: Path) -> None:
    """Typer itself loads pydantic for a command."""
    (tmp_path / "bad.yaml").write_text("name: [")
    (tmp_path / "odd.yaml").write_text("{name: mine, engines: [liveserve], workload: voice, grids: {c: [4]}}")
    program = [sys.executable, "-c", PROGRAM, json.dumps([command.split() for command in commands])]
    done = subprocess.run(program, capture_output=True, text=True, cwd=tmp_path, check=True)
    for command, line in zip(commands, done.stdout.splitlines(), strict=True):
        status, said, packages, ours = json.loads(line)
        assert (status, without & set(packages)) == (ends, set()), (command, said)
        assert said and ours < MOST, command
    assert done.stderr == ""
