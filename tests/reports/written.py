"""Results directories whose points are made by a function of the test, without workers."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pandas as pd
import pyarrow as pa

from harness.by_device import expand
from harness.experiments.experiment import Experiment
from harness.experiments.point import Point
from harness.experiments.provenance import environment
from harness.metrics.metric import Metric
from harness.records.measured import RunFacts
from harness.records.record import Measurement, failed, write_failure, write_record
from harness.records.results import claim, write_summary
from tests.harness.fakes import sealed
from workloads.trace import Trace

Measure = Callable[[Point], Measurement]
Fails = Callable[[Point], bool]

here = cache(environment)
"""The environment of these tests, for which git is asked once and not for each record."""


def never(point: Point) -> bool:
    """Of points that fail: none."""
    return False


def measurement(
    trace: Trace,
    events: pd.DataFrame,
    steps: pd.DataFrame,
    requests: pd.DataFrame,
    metrics: Mapping[str, Metric],
    end_s: float,
) -> Measurement:
    """Of a run of so many simulated seconds in one of the machine's."""
    tables = (pa.Table.from_pandas(table, preserve_index=False) for table in (events, steps))
    values = {name: metric.as_dict() for name, metric in metrics.items()}
    cost = {"wall_s": 1.0, "simulated_s": end_s}
    return Measurement(trace, *tables, requests=requests, metrics=values, facts=RunFacts(end_s), proof={}, cost=cost)


def write_run(folder: Path, experiment: Experiment, measure: Measure, fails: Fails) -> Path:
    """Write every point of `experiment`; those that `fails` names fail."""
    points = expand(experiment)
    with claim(folder, experiment) as points_dir:
        write_points(points_dir, points, measure, fails)
        write_summary(folder, [point.id for point in points])
    return folder


def resealed(folder: Path) -> Path:
    """The same results with the sums of their files as they are now."""
    for record in (folder / "points").iterdir():
        sealed(record)
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
