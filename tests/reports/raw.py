"""A card's run for tests that compute its values again, and the few rules that they need for it."""

from collections.abc import Sequence
from math import floor
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


def events(point: Measured) -> list[dict[str, Any]]:
    """What happened, in the order of time."""
    return point.record.table("events").sort_values("t", kind="stable").to_dict("records")


def percentile(values: Sequence[float], percent: float) -> float:
    """By linear interpolation between the two nearest."""
    ordered = sorted(values)
    place = percent / 100 * (len(ordered) - 1)
    low = floor(place)
    above = ordered[min(low + 1, len(ordered) - 1)]
    return ordered[low] + (place - low) * (above - ordered[low])


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
