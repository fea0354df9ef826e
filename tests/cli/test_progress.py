"""What a command says while it takes its time: its stages, and the time left of runs as they were recorded."""

import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.experiments.point import Point
from harness.experiments.run_order import Outcome
from reports.cli import stage
from reports.cli.progress import TimeLeft, progress
from reports.cli.stage import Stage
from tests.builders import REHEARSE
from tests.harness import fakes
from tests.waiting import wait_until

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "durations.json").read_text())
"""Runs on two cores of one machine: how many points at a time, and of each, in the order of their ends, engine, what
tells its size, how long it took and when it had ended, s."""


def point(engine: str, seed: int, params: dict[str, float]) -> Point:
    (plain,) = fakes.points(1)
    changed = {"engine": engine, "seed": seed, "workload_params": params}
    return Point.model_validate({**plain.model_dump(), **changed})


def outcome(point: Point, wall_s: float, status: Any = "ok") -> Outcome:
    return Outcome(point, status, Path(), wall_s)


@pytest.mark.parametrize("run", RECORDED)
def test_it_is_known_within_a_factor_of_two_after_the_first_point(run: str) -> None:
    jobs, rows = RECORDED[run]["jobs"], RECORDED[run]["points"]
    points = [point(engine, seed, params) for seed, (engine, params, _, _) in enumerate(rows)]
    left, end_s = TimeLeft(points, jobs), rows[-1][-1]
    for number, (each, (_, _, wall_s, ended_s)) in enumerate(zip(points, rows, strict=True), 1):
        left.ended(outcome(each, wall_s))
        if number in (1, len(points) // 2):
            told, true = left.seconds(ended_s), end_s - ended_s
            assert told is not None and true / 2 <= told <= 2 * true, (number, told, true)
    assert left.seconds(end_s) == 0


@given(st.lists(st.floats(0.1, 100), min_size=2, max_size=12), st.integers(1, 4), st.integers(0, 3))
def test_points_that_take_the_same_are_divided_by_the_workers(walls: list[float], jobs: int, turns: int) -> None:
    points = [point("vllm_omni", seed, {"sessions": 4, "turns": turns}) for seed in range(len(walls))]
    left = TimeLeft(points, jobs)
    assert left.seconds(5.0) is None
    left.ended(outcome(points[0], 1.0, "failed"))
    assert left.seconds(5.0) is None, "one that failed tells nothing"
    left.ended(outcome(points[1], walls[0]))
    rest = len(walls) - 2
    assert left.seconds(5.0) == pytest.approx(walls[0] * max(rest / jobs, bool(rest)))
    unknown = TimeLeft(points, None)
    unknown.ended(outcome(points[0], walls[0]))
    told = unknown.seconds(walls[0] / 2)  # two seem to run at a time
    assert told == pytest.approx(walls[0] * max((len(walls) - 1) / 2, 1))


def test_an_engine_that_is_known_speaks_for_itself_and_a_larger_point_takes_longer() -> None:
    kinds = [("vllm_omni", 4), ("liveserve", 4), ("liveserve", 4), ("vllm_omni", 12)]
    points = [point(engine, seed, {"sessions": sessions}) for seed, (engine, sessions) in enumerate(kinds)]
    left = TimeLeft(points, 1)
    left.ended(outcome(points[0], 10.0))
    before = left.seconds(10.0)
    left.ended(outcome(points[1], 50.0))
    after = left.seconds(60.0)
    assert before == pytest.approx(20 + 20 + 20) and after == pytest.approx(50 + 20)


def test_the_line_of_a_point_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    points = fakes.points(4)
    with progress(points, 3, 2) as (show, _):
        show(outcome(points[0], 800.0))
        show(outcome(points[1], 800.0, "failed"))
        show(outcome(points[2], 10.0))
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["3 of 7 points are finished already", "measuring 4 points, once vLLM is loaded"]
    assert lines[2].endswith("ok in 800.0 s; 3 left, about 20 min") and lines[2].startswith("[4/7] ")
    assert lines[4].endswith("1 left, about 405 s")


def test_a_stage_that_lasts_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
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
