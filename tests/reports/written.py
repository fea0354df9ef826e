"""Results directories whose points are made by a function of the test, without workers."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from harness.experiments.experiment import Experiment, Point, expand
from harness.records.provenance import environment
from harness.records.record import Measurement, failed, write_failure, write_record
from harness.records.results import claim, write_summary
from tests.harness.fakes import without_sums

Measure = Callable[[Point], Measurement]
Fails = Callable[[Point], bool]

here = cache(environment)
"""The environment of these tests, for which git is asked once and not for each record."""


def never(point: Point) -> bool:
    """Of points that fail: none."""
    return False


def write_run(folder: Path, experiment: Experiment, measure: Measure, fails: Fails) -> Path:
    """Write every point of `experiment`; those that `fails` names fail."""
    points = expand(experiment)
    with claim(folder, experiment) as points_dir:
        write_points(points_dir, points, measure, fails)
        write_summary(folder, [point.id for point in points])
    return folder


def changeable(folder: Path) -> Path:
    """The same results without the sums of their files, so that what a test changes there is not taken for damage."""
    for record in (folder / "points").iterdir():
        without_sums(record)
    return folder


def write_points(points_dir: Path, points: Sequence[Point], measure: Measure, fails: Fails) -> None:
    """Write the records of those of these points that have none."""
    started = datetime(2025, 1, 1, tzinfo=UTC)
    for point in points:
        if fails(point):
            write_failure(failed(points_dir, point.id), point, "the GPU <melted>", here(), started)
        elif not (points_dir / point.id).exists():
            (points_dir / point.id).mkdir()
            write_record(points_dir / point.id, point, measure(point), {}, here(), started)
