"""The order in which points are run: a permutation that a seed gives again, kept with every record."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.experiments.point import Point
from harness.experiments.run_order import Order, shuffled
from harness.records.record import load_record
from harness.records.results import unfinished
from harness.replays.executors.local import LocalExecutor
from tests.harness import fakes

POINTS: list[Point] = [*fakes.points(10)]


@given(count=st.integers(0, len(POINTS)), seed=st.integers(0, 2**32))
def test_every_point_has_one_place_and_the_seed_gives_it_again(count: int, seed: int):
    points = POINTS[:count]
    order = shuffled(points, seed)
    assert sorted(order.points, key=POINTS.index) == points
    assert order.points == shuffled(points, seed).points
    assert shuffled(points, None).points == tuple(points)
    assert sorted(order.facts(point)["order"] for point in points) == list(range(1, count + 1))


def test_the_order_of_a_seed_does_not_change_with_the_program():
    """A published order can be run again: places depend on the seed and the number of points alone."""
    assert [POINTS.index(point) for point in shuffled(POINTS, 0).points] == [6, 0, 7, 3, 5, 1, 4, 8, 2, 9]
    assert len({tuple(point.id for point in shuffled(POINTS, seed).points) for seed in range(5)}) == 5


def test_a_failed_point_has_its_place_as_well(tmp_path: Path):
    order = shuffled(POINTS[:2], 1)
    executor: Any = LocalExecutor(tmp_path, fakes.fail, jobs=1, timeout_s=60, order=order, preload=fakes.PRELOAD)
    manifests = [load_record(outcome.folder).manifest for outcome in executor.run(order.points)]
    assert [(each["status"], each["order"]) for each in manifests] == [("failed", 1), ("failed", 2)]


def executor(points_dir: Path, order: Order) -> Any:
    return LocalExecutor(points_dir, fakes.measure, jobs=1, timeout_s=60, order=order, preload=fakes.PRELOAD)


def test_a_resumed_run_goes_on_where_the_order_stood(tmp_path: Path):
    """Stopped after two points, the rest follows in the same order and at the same places."""
    order = shuffled(POINTS[:5], 7)
    running = executor(tmp_path, order).run(order.points)
    first = [next(running).point, next(running).point]
    running.close()
    todo = unfinished(tmp_path, order.points)
    assert [*first, *todo] == list(order.points)
    list(executor(tmp_path, shuffled(POINTS[:5], 7)).run(todo))
    places = [load_record(tmp_path / point.id).manifest["order"] for point in order.points]
    assert places == [1, 2, 3, 4, 5]


def test_a_record_has_the_load_average_at_its_start(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (1.234, 2.0, 3.0))
    assert shuffled(POINTS, 0).facts(POINTS[0])["load_average"] == [1.23, 2.0, 3.0]
