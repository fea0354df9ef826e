"""Tasks of an array, which share their points through a folder, without Slurm."""

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from harness.executors.array_task import (
    CLAIMS,
    Array,
    State,
    claim_of,
    measure_claimed,
    read_state,
    write_array,
)
from harness.executors.node import Task
from harness.experiments.experiment import Point
from harness.experiments.order import Order
from harness.records.record import Work, load_record
from tests.harness import fakes


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """A task sets its own, for the rest of its process."""
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGUSR2)}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def array(tmp_path: Path, points: list[Point], work: Work = fakes.measure) -> tuple[Path, Path]:
    """The array's folder, and that of the records."""
    folder, points_dir = tmp_path / "slurm", tmp_path / "points"
    points_dir.mkdir(exist_ok=True)
    write_array(folder, Array(Task(work, Order(tuple(points)), 60, preload=()), points, points_dir))
    return folder, points_dir


def test_each_point_is_measured_by_the_task_that_claims_it(tmp_path: Path) -> None:
    points = fakes.points(4)
    folder, points_dir = array(tmp_path, points, partial(fakes.counted, tmp_path / "diary", 0))
    (folder / CLAIMS / points[1].id).write_text("7")
    measure_claimed(folder, 0)
    measure_claimed(folder, 1)
    ended = [id for id, *_ in read_state(folder, 0).ended]
    assert ended == [points[0].id, points[2].id, points[3].id] and read_state(folder, 1).ended == []
    assert sorted(path.name for path in points_dir.iterdir()) == sorted(ended)
    diary = (tmp_path / "diary").read_text().splitlines()
    assert [line.split()[1] for line in diary if line.startswith("begin")] == ended
    claim = claim_of(folder, points[0])
    assert claim is not None and claim.task == 0
    assert load_record(points_dir / points[3].id).manifest["order"] == 4


def test_a_task_that_begins_again_goes_on_with_the_point_that_it_had(tmp_path: Path) -> None:
    points = fakes.points(3)
    folder, _ = array(tmp_path, points, partial(fakes.counted, tmp_path / "diary", 0))
    for point, number in zip(points, ("0", "0", "1"), strict=True):
        (folder / CLAIMS / point.id).write_text(number)
    before = State(node="lost", ended=[(points[0].id, "ok", 1.0, "")], current=points[1].id, share=0.7)
    (folder / "tasks" / "0.json").write_text(before.model_dump_json())
    measure_claimed(folder, 0)
    state = read_state(folder, 0)
    assert [id for id, *_ in state.ended] == [points[0].id, points[1].id]
    assert state.node != "lost" and state.share == 0 and not state.current
    assert {line.split()[1] for line in (tmp_path / "diary").read_text().splitlines()} == {points[1].id}


def test_a_claim_that_was_never_written_is_nobody_s(tmp_path: Path) -> None:
    (point,) = fakes.points(1)
    folder, points_dir = array(tmp_path, [point])
    (folder / CLAIMS / point.id).touch()
    measure_claimed(folder, 0)
    assert claim_of(folder, point) is None and not list(points_dir.iterdir())


def test_a_node_with_other_code_measures_nothing_and_says_so(tmp_path: Path) -> None:
    point = fakes.points(1)[0].model_copy(update={"code_hash": "0" * 64})
    folder, points_dir = array(tmp_path, [point])
    measure_claimed(folder, 0)
    state = read_state(folder, 0)
    assert f"node {state.node} has other code" in state.refused
    assert not list(points_dir.iterdir()) and claim_of(folder, point) is None


def test_a_failed_point_is_told_with_its_reason_and_the_others_go_on(tmp_path: Path) -> None:
    points = fakes.points(3)
    folder, points_dir = array(tmp_path, points, fakes.misbehave)
    measure_claimed(folder, 0)
    ends = [(status, reason) for _, status, _, reason in read_state(folder, 0).ended]
    assert [status for status, _ in ends] == ["ok", "failed", "failed"]
    assert ends[1][1] == "RuntimeError: the engine is lost"
    assert "Traceback" in (points_dir / f"{points[1].id}.failed" / "log.txt").read_text()
