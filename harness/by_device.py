"""Replays and live runs by the device of an experiment: its names, its points, and how a point is measured.

Commands that take any experiment come here; each side is imported when an experiment needs it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.experiments import grid, settings
from harness.experiments.experiment import ENDPOINT, Experiment
from harness.experiments.grid import MOST_POINTS, Fields, Schema, Traces
from workloads.deferred import Deferred
from workloads.devices import LIVE, SOCKET_DEVICES

if TYPE_CHECKING:
    from harness.experiments.point import Point
    from harness.records.record import Measurement
    from harness.replays.point import ReplayPoint


class ByDevice:
    """The names of both sides. Implements `harness.experiments.grid.Schema`."""

    @property
    def engines(self) -> Collection[str]:
        from engines.registry import ENGINES

        return [*ENGINES, ENDPOINT]

    def fields(self, experiment: Experiment, engine: str, settings: Mapping[str, object]) -> Fields:
        return schema_of(experiment).fields(experiment, engine, settings)

    def owners(self, name: str) -> Sequence[str]:
        from engines.composition import owners

        return owners(name)


BY_DEVICE = ByDevice()
_CALLS = Deferred("harness.live.expand:expand", loaded=False)
_ENDPOINTS = Deferred("harness.live.expand:ENDPOINTS", loaded=False)
_KIND_OF_CALLS = Deferred("harness.live.kinds:named", loaded=False)
_OVER_SOCKETS = Deferred("harness.serving.measure_sockets:measure_sockets", loaded=False)
"""The live side, whose libraries are an extra."""


def schema_of(experiment: Experiment) -> Schema:
    """Return the names of the side that measures the experiment."""
    if experiment.device == LIVE:
        endpoints: Schema = _ENDPOINTS.load()
        return endpoints
    from harness.replays.expand import SYSTEMS

    return SYSTEMS


def expand(experiment: Experiment, traces: Traces | None = None, most: float = MOST_POINTS) -> Sequence[Point]:
    """Return all points, in the order engines, grid, seeds. UserError for anything that could not run, and for more
    than `most` points. `traces`: those made so far, for experiments that share some; new ones are added."""
    if experiment.device == LIVE:
        calls: Sequence[Point] = _CALLS(experiment, traces, most)
        return calls
    from harness.replays import expand as replays

    points = replays.expand(experiment, traces, most)
    if experiment.device in SOCKET_DEVICES:
        for point in points:
            _KIND_OF_CALLS(point.setup.kind.name)
    return points


def override(experiment: Experiment, changes: Mapping[str, object], seeds: int | None = None) -> Experiment:
    """Return the experiment with these settings, as `harness.experiments.settings.override`."""
    return settings.override(experiment, changes, BY_DEVICE, seeds)


def parameters(experiment: Experiment) -> dict[str, str]:
    """Return every parameter that some cell of the experiment has, with its group."""
    return grid.parameters(experiment, BY_DEVICE)


def measure(point: ReplayPoint, folder: Path | None = None) -> Measurement:
    """Measure a point in this worker, by its device. Raises as `harness.replays.worker.measure` and
    `harness.serving.measure_sockets`."""
    if point.device == "sockets":
        measured: Measurement = _OVER_SOCKETS(point)
        return measured
    from harness.replays.worker import measure

    return measure.measure(point, folder)
