"""A command that takes its time says what it does; one that is refused at once says why, and nothing else."""

import subprocess
import threading
from pathlib import Path

import pytest

from reports.cli import stage
from reports.cli.stage import Stage
from tests.builders import REHEARSE
from tests.waiting import wait_until


def test_a_stage_is_printed_once_it_takes_its_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stage, "PATIENCE_S", 0.01)
    said = ""

    def read() -> str:
        nonlocal said
        said += capsys.readouterr().err
        return said

    with Stage() as doing:
        doing("loading the client")
        wait_until(lambda: read() == "loading the client …\n")
        doing("planning the calls")
        doing("")
    assert read() == "loading the client …\nplanning the calls …\n"


def test_what_ends_at_once_prints_no_stage(capsys: pytest.CaptureFixture[str]) -> None:
    with Stage() as doing:
        doing("loading the client")
        waiting = [each for each in threading.enumerate() if isinstance(each, threading.Timer)]
    for each in waiting:
        each.join()
    assert capsys.readouterr().err == ""


def test_live_names_its_stages_before_its_plan(tmp_path: Path) -> None:
    """From the first on, as the patience of this process is over at once."""
    program = f"from reports.cli import stage; stage.PATIENCE_S = 0; {REHEARSE[-1]}"
    command = [*REHEARSE[:-1], program, "live", "ws://127.0.0.1:9/v1", "--sessions", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    lines = done.stderr.splitlines()
    assert lines[:2] == ["loading the client …", "planning the calls …"]
    assert lines[2].startswith("2 calls: about ") and lines[3] == "loading the load generator …"
    asking = "asking ws://127.0.0.1:9/v1 what it speaks, for 0 s so far"
    assert lines[4] == "measuring 1 point, each with its floor first" and lines[5].endswith(asking)
    assert lines[6].startswith("rehearse: nothing can be reached at ws://127.0.0.1:9/v1 ") and len(lines) == 7
