"""The grid of an experiment: its cells, their parameters and their points. Here, and nowhere else, settings are
validated.

Nothing runs before every point is valid: names, types and ranges of all parameters, and the trace itself,
which is generated here once for its hash. A point's id therefore covers the resolved configuration, the
workload's content (a CSV that changed is another workload) and the program (`harness.experiments.identity.code_hash`):
stale numbers are never resumed.
"""

from __future__ import annotations

import difflib
import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Protocol, TypeVar, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from harness.experiments.experiment import CHOICES, ENDPOINT, Experiment
from harness.experiments.point import Point
from workloads.devices import check_device
from workloads.errors import UserError, unknown
from workloads.registry import WORKLOADS

if TYPE_CHECKING:
    from workloads.trace import Trace

P = TypeVar("P", bound=Point)
P_co = TypeVar("P_co", bound=Point, covariant=True)
Fields = Mapping[str, Mapping[str, FieldInfo]]
"""Declarations of parameters, by group: workload, client, server, engine."""
Traces = dict[tuple[str, str, int], "Trace"]
"""Traces by workload, parameters (JSON) and seed."""

KEPT_TURNS = 5_000_000
"""Turns of the traces that are kept while points are made: [chosen] two gigabytes. Older traces are made again where
they are needed."""

MOST_POINTS = 100_000
"""Points of one experiment, unless somebody confirms more: [chosen] ten minutes to expand."""


class Schema(Protocol):
    """The names that replays, or live runs, know."""

    @property
    def engines(self) -> Collection[str]:
        """All engines by name."""
        ...

    def fields(self, experiment: Experiment, engine: str, settings: Mapping[str, object]) -> Fields:
        """Return the parameters of the experiment with this engine and these settings. UserError for settings that
        cannot be combined."""
        ...

    def owners(self, name: str) -> Sequence[str]:
        """Return what else has a parameter of this name, in words."""
        ...


@dataclass(frozen=True)
class Cell:
    """An engine with settings, without a seed. `fields`: the declarations of its parameters; `groups`: its settings by
    the same groups."""

    engine: str
    settings: Mapping[str, object]
    fields: Fields
    groups: Mapping[str, Mapping[str, object]]


class Maker(Protocol[P_co]):
    """Makes the points of one cell."""

    @property
    def workload(self) -> BaseModel:
        """Parameters of the workload."""
        ...

    def users_seed(self, seed: int) -> int:
        """Return the seed that the trace of a point is drawn from; `seed`: the point's."""
        ...

    def point(self, trace: Trace, seed: int) -> P_co:
        """Return the point of a trace. UserError where it could not run."""
        ...


def points(experiment: Experiment, makers: Iterable[Maker[P]], traces: Traces | None = None) -> list[P]:
    """Return the points of all cells, in their order and that of the seeds. `traces`: those
    made so far, for experiments that share some; new ones are added. UserError for anything that could not run."""
    traces = {} if traces is None else traces
    kept = sum(map(len, traces.values()))
    made: dict[str, P] = {}
    for maker in makers:
        stored = json.dumps(maker.workload.model_dump(mode="json"), sort_keys=True)
        for seed in experiment.seeds:
            drawn = maker.users_seed(seed)
            key = (experiment.workload, stored, drawn)
            if key not in traces:
                traces[key] = WORKLOADS[experiment.workload].generate(maker.workload, drawn)
                kept += len(traces[key])
            trace = traces[key]
            while kept > KEPT_TURNS and len(traces) > 1:
                kept -= len(traces.pop(next(iter(traces))))
            point = maker.point(trace, seed)
            # An axis that this engine does not have yields the same point again: it is measured once.
            made.setdefault(point.id, point)
    return list(made.values())


def checked_cells(experiment: Experiment, schema: Schema, most: float = MOST_POINTS) -> list[Cell]:
    """Return the cells of an experiment, engine by engine. UserError for unknown names, settings that cannot be
    combined, and more than `most` points."""
    _check_size(experiment, most)
    cells = [*cells_of(experiment, schema)]
    names = {name for cell in cells for fields in cell.fields.values() for name in fields}
    for name in [*experiment.set, *experiment.grid, *experiment.along]:
        if name not in names:
            raise _unknown(name, names, experiment, schema)
    return cells


def cells_of(experiment: Experiment, schema: Schema) -> Iterator[Cell]:
    """Yield the cells of an experiment. UserError for unknown names, and settings that cannot be combined."""
    check_names(experiment, schema.engines)
    for engine, values in itertools.product(experiment.engines, itertools.product(*experiment.grid.values())):
        settings = {**experiment.set, **dict(zip(experiment.grid, values, strict=True))}
        for name, along in experiment.along.items():
            first = next(iter(experiment.grid.values()))
            settings[name] = along[first.index(values[0])]
        fields = schema.fields(experiment, engine, settings)
        groups = {
            group: {name: value for name, value in settings.items() if name in group_fields}
            for group, group_fields in fields.items()
        }
        yield Cell(engine, settings, fields, groups)


def parameters(experiment: Experiment, schema: Schema) -> dict[str, str]:
    """Return every parameter that some cell of the experiment has, with its group. UserError for settings that cannot
    be combined."""
    return {
        name: group for cell in cells_of(experiment, schema) for group, fields in cell.fields.items() for name in fields
    }


def is_whole(experiment: Experiment, schema: Schema, name: str) -> bool:
    """Return whether the parameter is a whole number, not any number. UserError where it is not a number, or no cell
    has it."""
    groups = parameters(experiment, schema)
    if name not in groups:
        raise _unknown(name, groups, experiment, schema)
    types = {
        each
        for field in _declared(experiment, schema, name)
        for each in (field.annotation, *get_args(field.annotation))
    }
    if bool in types or types.isdisjoint((int, float)):
        raise UserError(f"parameter {name!r} is not a number; use one that is, such as c.")
    return float not in types


def largest(experiment: Experiment, schema: Schema, name: str) -> float:
    """Return the largest allowed value of a parameter; infinity where it has no limit of its own."""
    rules = [rule for field in _declared(experiment, schema, name) for rule in field.metadata]
    limits = [getattr(rule, "le", None) for rule in rules]
    return min((limit for limit in limits if limit is not None), default=float("inf"))


def check_names(experiment: Experiment, engines: Collection[str]) -> None:
    """Raise UserError for an engine that is not one of `engines`, and for an unknown workload or device."""
    live = experiment.device == "live"
    for engine in experiment.engines:
        if engine == ENDPOINT and not live:
            raise UserError(
                f"engine {ENDPOINT!r} is whatever stands behind a url, which device {experiment.device} cannot run; "
                "set engine too, for example --set engine=liveserve, or leave the device out to call the endpoint "
                "again."
            )
        if engine != ENDPOINT and live:
            raise UserError(
                f"device live calls an endpoint that runs already, not engine {engine!r}; use rehearse live URL, or "
                "device sockets for a server of our own."
            )
    for engine in experiment.engines:
        if engine not in engines:
            raise unknown("engine", engine, engines)
    if experiment.workload not in WORKLOADS:
        raise unknown("workload", experiment.workload, WORKLOADS)
    check_device(experiment.device)


def _declared(experiment: Experiment, schema: Schema, name: str) -> list[FieldInfo]:
    cells = cells_of(experiment, schema)
    return [fields[name] for cell in cells for fields in cell.fields.values() if name in fields]


def _check_size(experiment: Experiment, most: float) -> None:
    """Raise UserError for more than `most` points."""
    sizes = {"engines": len(experiment.engines)} | {name: len(axis) for name, axis in experiment.grid.items()}
    sizes["seeds"] = len(experiment.seeds)
    count = prod(sizes.values())
    if count > most:
        parts = " x ".join(f"{size:,} {name}" for name, size in sizes.items() if size > 1)
        raise UserError(
            f"experiment {experiment.name} has {count:,} points ({parts}), and more than {most:,} take long to expand; "
            "ask for fewer values or seeds, or add --yes to rehearse run."
        )


def _unknown(name: str, declared: Iterable[str], experiment: Experiment, schema: Schema) -> UserError:
    who = f"workload {experiment.workload} and {' and '.join(experiment.engines)}"
    having = schema.owners(name)
    if having:
        return UserError(f"{name} is a parameter of {' and of '.join(having)}, which {who} do not have; set that too.")
    names = [*declared, *CHOICES]
    if not difflib.get_close_matches(name, names, n=1, cutoff=0.8):
        others = [other for other, spec in WORKLOADS.items() if name in spec.Params.model_fields]
        if others:
            return UserError(
                f"{name} is a parameter of workload {', '.join(others)}, which {who} do not have; leave it out, or set "
                "workload too."
            )
    return unknown("parameter", name, names, f" for {who}")
