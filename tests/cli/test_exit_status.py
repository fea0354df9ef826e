"""The exit status of every command: one page for all, and status 1 for nothing but FAIL."""

import re
import signal
import subprocess
from pathlib import Path

import pytest

from harness import exit_status
from harness.exit_status import BAD_INPUT, FAIL, OK, SIGNALLED, UNDECIDED
from harness.live.null_server.null_server import NullServer
from harness.live.run import live_executor
from harness.live.run.launch import GeneratorFailed
from harness.records.record import status_of
from reports.cli.app import NAMES
from tests.builders import REHEARSE
from tests.conftest import Rehearse

PAGE = (Path(__file__).parents[2] / "docs" / "exit-status.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """The cells of the table that begins with this heading."""
    table = PAGE[PAGE.index(f"| {heading} |") :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def test_the_page_has_every_status() -> None:
    listed = {int(number) for status, _ in rows("status") for number in re.findall(r"\d+", status)}
    known = {value for name, value in vars(exit_status).items() if name.isupper() and name != "SIGNALLED"}
    assert listed == known | {SIGNALLED + signal.SIGINT, SIGNALLED + signal.SIGTERM}


def test_the_page_has_every_command() -> None:
    listed = {name.split()[0] for command, *_ in rows("command") for name in re.findall("`(.+?)`", command)}
    assert listed == set(NAMES)


@pytest.mark.parametrize(
    ("failures", "status"),
    [
        ([], OK),
        (["the engine is lost"], FAIL),
        (["INVALID: the generator was late"], UNDECIDED),
        (["INVALID: the generator was late", "the engine is lost"], FAIL),
    ],
)
def test_points_that_are_all_invalid_decide_nothing(failures: list[str], status: int) -> None:
    assert status_of(failures) == status


@pytest.mark.usefixtures("unrendered")
@pytest.mark.parametrize("error", [GeneratorFailed("not ready after 180 s"), ZeroDivisionError("ours")])
def test_an_error_of_the_load_generator_decides_nothing_about_the_server(
    rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception
) -> None:
    def breaks(*_: object) -> None:
        raise error

    monkeypatch.setattr(live_executor, "measure_live", breaks)
    asked = ("--sessions", "1", "--duration", "2", "--out", "out")
    status, out, err = rehearse("live", "ws://127.0.0.1:9/v1", *asked)
    assert status == UNDECIDED and "INVALID: " in out.splitlines()[0] and str(error) in err + out


COMMAND = " ".join(f"'{word}'" for word in REHEARSE)


def in_bash(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True)


@pytest.mark.slow("calls in real time")
def test_a_pipe_that_closes_after_the_first_line_changes_neither_status_nor_report(tmp_path: Path) -> None:
    load = "--rate 40 --duration 2 --seed 0 --set send_delay_limit_ms=5000 --slo 'ttft_p90<=1ms' --out out"
    with NullServer("text", tmp_path) as server:
        url = server.url.replace("ws://", "http://")
        done = in_bash(f"{COMMAND} live {url} {load} | head -1; exit ${{PIPESTATUS[0]}}", tmp_path)
    assert done.returncode == FAIL and done.stdout.startswith("FAIL: "), done.stderr
    assert (tmp_path / "out" / "report.html").is_file() and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "closed", "status"),
    [("list", "<&- >&- 2>&-", OK), ("list engins", "<&- >&- 2>&-", BAD_INPUT), ("list engins", "<&- >&-", BAD_INPUT)],
)
def test_closed_streams_change_no_status(arguments: str, closed: str, status: int, tmp_path: Path) -> None:
    done = in_bash(f"{COMMAND} {arguments} {closed}", tmp_path)
    assert done.returncode == status and "Traceback" not in done.stderr
    if "2>" not in closed:
        assert done.stderr == "rehearse: unknown kind 'engins'. Did you mean 'engines'?\n"
