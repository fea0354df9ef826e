import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.experiments.point import Point
from harness.experiments.run_order import Outcome
from reports.cli.progress import TimeLeft, progress
from tests.builders import REHEARSE
from tests.harness import fakes

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "durations.json").read_text())
"""Runs on two cores of one machine: points at a time, and for each point, in the order of their ends: engine,
parameters, seconds that it took, and seconds at its end."""


def point(engine: str, seed: int, params: dict[str, float]) -> Point:
    (plain,) = fakes.points(1)
    changed = {"engine": engine, "seed": seed, "workload_params": params}
    return Point.model_validate({**plain.model_dump(), **changed})


def outcome(point: Point, wall_s: float, status: Any = "ok") -> Outcome:
    return Outcome(point, status, Path(), wall_s)


@pytest.mark.parametrize("run", RECORDED)
def test_the_time_left_is_known_within_a_factor_of_two_after_the_first_point(run: str) -> None:
    jobs, rows = RECORDED[run]["jobs"], RECORDED[run]["points"]
    points = [point(engine, seed, params) for seed, (engine, params, _, _) in enumerate(rows)]
    left, end_s = TimeLeft(points, jobs), rows[-1][-1]
    for number, (each, (_, _, wall_s, ended_s)) in enumerate(zip(points, rows, strict=True), 1):
        left.ended(outcome(each, wall_s))
        if number in (1, len(points) // 2):
            estimate, true = left.seconds(ended_s), end_s - ended_s
            assert estimate is not None and true / 2 <= estimate <= 2 * true, (number, estimate, true)
    assert left.seconds(end_s) == 0


@given(st.floats(0.1, 100), st.integers(2, 12), st.integers(1, 4))
def test_the_time_left_of_equal_points_is_divided_by_the_workers(wall_s: float, count: int, jobs: int) -> None:
    points = [point("vllm_omni", seed, {"sessions": 4, "turns": 2}) for seed in range(count)]
    left = TimeLeft(points, jobs)
    left.ended(outcome(points[0], 1.0, "failed"))
    assert left.seconds(5.0) is None, "a failed point says nothing"
    left.ended(outcome(points[1], wall_s))
    rest = count - 2
    assert left.seconds(5.0) == pytest.approx(wall_s * max(rest / jobs, bool(rest)))


def test_the_number_of_unknown_workers_is_estimated_from_the_times_so_far() -> None:
    points = [point("vllm_omni", seed, {"sessions": 4, "turns": 2}) for seed in range(5)]
    left = TimeLeft(points, None)
    left.ended(outcome(points[0], 10.0))
    assert left.seconds(5.0) == pytest.approx(10 * 4 / 2)  # a point of 10 s ended after 5 s: two at a time


def test_the_time_of_a_point_is_that_of_its_engine_and_grows_with_its_size() -> None:
    kinds = [("vllm_omni", 4), ("liveserve", 4), ("liveserve", 4), ("vllm_omni", 12)]
    points = [point(engine, seed, {"sessions": sessions}) for seed, (engine, sessions) in enumerate(kinds)]
    left = TimeLeft(points, 1)
    left.ended(outcome(points[0], 10.0))
    before = left.seconds(10.0)
    left.ended(outcome(points[1], 50.0))
    after = left.seconds(60.0)
    assert before == pytest.approx(20 + 20 + 20) and after == pytest.approx(50 + 20)


def test_the_line_of_a_point_has_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    points = fakes.points(4)
    with progress(points, 3, 2) as (show, _):
        show(outcome(points[0], 800.0))
        show(outcome(points[1], 800.0, "failed"))
        show(outcome(points[2], 10.0))
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["3 of 7 points are finished already", "measuring 4 points, once vLLM is loaded"]
    assert lines[2].endswith("ok in 800.0 s; 3 left, about 20 min") and lines[2].startswith("[4/7] ")
    assert lines[4].endswith("1 left, about 405 s")


def test_live_prints_its_stages_before_its_plan(tmp_path: Path) -> None:
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
