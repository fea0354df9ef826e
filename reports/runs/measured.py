"""A run for readers: its variants, the cells of the grid, and the measured points.

A *variant* is an engine with the values of those axes that are the engine's own parameters, and the release of vLLM
where several are run; a *cell* is the rest of the grid, which all variants share. So a grid over `u2_mode` compares
modes of one engine with a baseline that has no such parameter.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.experiments.experiment import Experiment
from harness.experiments.point import Point
from harness.metrics.rates import Span, rate_span
from harness.metrics.stats import Spread, across_seeds
from harness.records.record import Record
from harness.records.results import read_results
from harness.request_tables.steady_window import WHOLE, Window, counted
from harness.slo.search import Searches, load_searches
from reports.runs.answer import Finished
from reports.tables import labels
from reports.tables.columns import fewest

BASELINE_ENGINES = ("vllm_omni", "vllm_realtime")
"""Engines that the others are compared with, of turns and of frames. Where none was run, the first engine of the
experiment counts."""

Cell = tuple[tuple[str, Any], ...]
"""Values of the axes that all variants share, in the order of the grid."""


@dataclass(frozen=True)
class Variant:
    """An engine, with the values of the axes that are its own parameters."""

    engine: str
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def label(self) -> str:
        return " ".join([self.engine, *(f"{name}={value}" for name, value in self.settings)])


@dataclass(frozen=True, eq=False)
class Measured:
    """One point of the run, finished or failed."""

    point: Point
    record: Record
    error: str | None
    """Reason for the failure; None for a finished point."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values of axes that a point stores only where they are not these."""

    @property
    def seed(self) -> int:
        return self.point.seed

    @cached_property
    def params(self) -> dict[str, Any]:
        return {**self.defaults, **self.point.params}

    @property
    def variant(self) -> Variant:
        settings = [(axis, self.params[axis]) for axis in self.point.axes if axis in self._variant_params]
        return Variant(self.point.engine, tuple(settings))

    @property
    def cell(self) -> Cell:
        shared = self.params.keys() - self._variant_params
        return tuple((axis, self.params[axis]) for axis in self.point.axes if axis in shared)

    @property
    def _variant_params(self) -> set[str]:
        return {*self.point.engine_params, "vllm"}

    def value(self, metric: str) -> float | None:
        """The metric in its own unit; None when missing, and for a failed point."""
        return self._metric(metric).get("value")

    @property
    def values(self) -> dict[str, float | None]:
        """Every metric; empty for a failed point."""
        return {name: metric["value"] for name, metric in self._metrics.items()}

    @property
    def kept(self) -> dict[str, float | None]:
        """Every metric, also of a failed point on disk: not results, but they show what was measured."""
        return {name: metric["value"] for name, metric in self.record.metrics.items()}

    @property
    def finished(self) -> Finished:
        """Return the point's values that an answer needs."""
        n = {name: metric["n"] for name, metric in self._metrics.items()}
        return Finished(self.point.engine, self.params, self.seed, self.values, n)

    def count(self, metric: str) -> int:
        """Observations behind the metric."""
        return self._metric(metric).get("n", 0)

    def _metric(self, name: str) -> dict[str, Any]:
        return self.record.metric(name) or {} if self.error is None else {}

    @cached_property
    def _metrics(self) -> dict[str, dict[str, Any]]:
        return self.record.metrics if self.error is None else {}  # INVALID ones keep theirs on disk

    def has(self, table: str) -> bool:
        """Return whether it has such a table; an INVALID point has some."""
        return self.record.has(table)

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row per turn that metrics are over, see `harness.request_tables.request_table.COLUMNS`."""
        return counted(self.all_requests)

    @cached_property
    def all_requests(self) -> pd.DataFrame:
        """The same with the turns before and after the steady window."""
        return self.record.table("requests")

    @cached_property
    def span(self) -> Span | None:
        """Begin and end of the time that rates are over, s of the run; None where it has no length."""
        begin_s, end_s = (self.value(name) for name in ("steady_begin", "steady_end"))
        window = WHOLE if begin_s is None or end_s is None else Window(begin_s, end_s)
        started_s = self.all_requests["turn_start_s"].to_numpy(float)
        run_end_s = float(started_s.min(initial=np.inf)) + (self.value("makespan") or 0.0)
        return rate_span({"turn_start_s": started_s}, window, run_end_s)

    @cached_property
    def turns(self) -> frozenset[tuple[int, int]]:
        """Every turn that began, as (session, turn)."""
        return frozenset(zip(self.all_requests["session"], self.all_requests["turn"], strict=True))

    def events(self, session: int) -> pd.DataFrame:
        """The event log of one session, in the order in which things happened."""
        return self.record.table("events", filters=[("session", "==", session)])

    def kinds(self, *kinds: str) -> pd.DataFrame:
        """The events of these kinds, of all sessions."""
        events = self.record.table("events")
        return events.loc[events["kind"].isin(kinds)]


@dataclass(frozen=True, eq=False)
class Run:
    """All points of a results directory, in the experiment's order."""

    folder: Path
    experiment: Experiment
    points: list[Measured]

    @cached_property
    def baseline(self) -> str:
        """Name of the engine that the others are compared with."""
        engines = [point.variant.engine for point in self.points]
        return next((engine for engine in BASELINE_ENGINES if engine in engines), engines[0])

    @cached_property
    def variants(self) -> list[Variant]:
        """Return the variants, the baseline's first."""
        unique = dict.fromkeys(point.variant for point in self.points)
        return sorted(unique, key=lambda variant: variant.engine != self.baseline)

    @cached_property
    def cells(self) -> list[Cell]:
        return list(dict.fromkeys(point.cell for point in self.points))

    @cached_property
    def seeds(self) -> list[int]:
        return sorted({point.seed for point in self.points})

    @property
    def failed(self) -> list[Measured]:
        return [point for point in self.points if point.error is not None]

    @cached_property
    def finished(self) -> list[Finished]:
        """Return the values of the points that count, for an answer."""
        return [point.finished for point in self.points if point.error is None]

    @cached_property
    def spoken(self) -> bool:
        """True if any reply was spoken; otherwise users wait for the first text token."""
        return any(point.value("audio_ttfp_p50") is not None for point in self.points)

    @cached_property
    def frames(self) -> bool:
        """True if interaction sessions were served, frame by frame, and not turns."""
        return any("frames_with_speech" in point.record.metrics for point in self.points)

    @cached_property
    def duplex(self) -> bool:
        """True if microphones stayed open, so that servers had to detect the ends of turns."""
        return any("end_of_turn_delay_p50" in point.record.metrics for point in self.points)

    @cached_property
    def live(self) -> bool:
        """True if clients spoke over real sockets, so that each send has a send delay."""
        return any(point.has("sends") for point in self.points)

    @cached_property
    def searches(self) -> Searches | None:
        """The searches that the points were measured for; None without any. UserError for a damaged file."""
        return load_searches(self.folder, (point.point.id for point in self.points))

    @cached_property
    def top(self) -> int | None:
        """The largest c, among counting points if there are any; None if c was not set."""
        counting = {point.params["c"] for point in self.points if point.error is None and "c" in point.params}
        return max(counting - {None}, default=next(reversed(self.values("c")), None))

    @cached_property
    def beyond_sessions(self) -> str | None:
        """Return a sentence on values of c above the number of sessions, which are never all present; None without
        such a value. A live run has as many users as it needs."""
        if self.experiment.device == "live":
            return None
        closed = [point for point in self.points if point.error is None and point.params.get("c")]
        sessions = {
            hash: len(set(record.table("trace", columns=["session"])["session"]))
            for hash, record in {point.point.trace_hash: point.record for point in closed}.items()
        }
        pairs = [(point.params["c"], sessions[point.point.trace_hash]) for point in closed]
        short = [(c, count) for c, count in pairs if c > count]
        if not short:
            return None
        values, counts = sorted({c for c, _ in short}), sorted({count for _, count in short})
        most = counts[-1]
        exceed = f"c = {' and '.join(map(str, values))} {'exceeds' if len(values) == 1 else 'exceed'}"
        limit = f"{counts[0]} to {most} sessions" if len(counts) > 1 else labels.counted(most, "session")
        points = sum(c in values for c, _ in pairs)
        where = f" in {len(short)} of {points} points" if len(short) < points else ""
        users = labels.counted(most, "caller" if self.spoken else "user")
        verb = "is" if most == 1 else "are"
        return f"{exceed} the {limit}{where}, so that at most {users} {verb} there at a time."

    @cached_property
    def interruptions(self) -> list[float]:
        """The probabilities p with which users interrupt, ascending; empty without spoken replies."""
        return self.values("p") if self.spoken else []

    def leads(self, variant: Variant) -> bool:
        """Return whether it is the first variant of its engine, which is compared with a paper."""
        return variant == next(other for other in self.variants if other.engine == variant.engine)

    def at(self, variant: Variant, cell: Cell | None = None, **params: Any) -> list[Measured]:
        """The points of a variant, in a cell or in all, with these values of parameters; over all seeds, failed ones
        too."""
        return [
            point
            for point in self.points
            if point.variant == variant
            and cell in (None, point.cell)
            and all(point.params.get(name) == value for name, value in params.items())
        ]

    def values(self, name: str) -> list[Any]:
        """Return the values of a parameter over the run, ascending; without None."""
        return sorted({point.params[name] for point in self.points if point.params.get(name) is not None})

    def pinned(self, *free: str) -> dict[str, Any]:
        """Return the first value of every shared axis but `free`: the fixed settings of a picture with these axes."""
        first: dict[str, Any] = {}
        for cell in self.cells:
            for axis, value in cell:
                if axis not in free:
                    first.setdefault(axis, value)
        return first


def load_run(folder: Path, asked: Experiment | None = None) -> Run:
    """Read a results directory; UserError if it is not one, or a record in it is damaged or newer. `asked`: the
    experiment that is stored there, with its settings in the order in which they were given."""
    stored, records = read_results(folder)
    return run_of(folder, asked or stored, records)


def run_of(folder: Path, experiment: Experiment, records: Sequence[Record]) -> Run:
    """Return the run of these records of an experiment."""
    defaults = _defaults(experiment, [each.point for each in records])
    return Run(folder, experiment, [Measured(each.point, each, each.error, defaults) for each in records])


def _defaults(experiment: Experiment, points: Sequence[Point]) -> dict[str, Any]:
    """Return the defaults of the axes that some points leave out, as a point stores only other values of them: the only
    value of such an axis that no point has. Axes of an engine's own parameters stay out, as other engines have no value
    of them."""
    defaults = {}
    for axis, values in experiment.grid.items():
        stored = [point.params[axis] for point in points if axis in point.params]
        left = [value for value in values if value not in stored]
        own = any(axis in point.engine_params for point in points)
        if len(stored) < len(points) and len(left) == 1 and not own:
            defaults[axis] = left[0]
    return defaults


def shown(points: Sequence[Measured]) -> Sequence[Measured]:
    """Return the points of a cell whose values a table shows. Where no point of a live run counts, these are the points
    with values, as if they counted, and the table marks them."""
    if any(point.error is None or point.point.device != "live" for point in points):
        return points
    kept = [replace(point, error=None) for point in points if point.record.metrics]
    return kept or points


def over_seeds(points: Iterable[Measured], metric: str) -> Spread:
    """Median, range and interval of a metric over the seeds of points that differ in nothing else."""
    return across_seeds(by_seed(points, metric))


def events(points: Iterable[Measured], metric: str) -> int | None:
    """Return the number of events behind the median over these points; see `fewest`."""
    return fewest((point.value(metric), point.count(metric)) for point in points)


def by_seed(points: Iterable[Measured], metric: str) -> Mapping[int, float | None]:
    return {point.seed: point.value(metric) for point in points}
