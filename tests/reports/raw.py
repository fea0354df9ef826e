"""A card's run for tests that compute its values again."""

from pathlib import Path
from typing import Any

from harness.experiments.experiment import Experiment
from harness.experiments.point import Point
from harness.records.record import Measurement
from harness.replays.point import ReplayPoint
from harness.replays.worker.measure import measure
from reports.runs.measured import Measured, load_run
from tests.reports.written import never, write_run


def served(folder: Path, experiment: Experiment) -> Measured:
    """The only point of `experiment`, replayed."""
    return load_run(write_run(folder, experiment, _replayed, never)).points[0]


def _replayed(point: Point) -> Measurement:
    assert isinstance(point, ReplayPoint)
    return measure(point)


def events(point: Measured) -> Any:
    """What happened, in the order of time."""
    return point.record.table("events").sort_values("t", kind="stable")
