"""An experiment's grid becomes points, each one measured configuration and seed. Here, and nowhere else, settings are
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from engines.composition import NoParams, owners
from engines.deployments.available import check as check_device
from engines.deployments.available import check_said
from engines.devices.names import SOCKET_DEVICES
from engines.devices.names import check_device as known_device
from engines.devices.profile import Profile
from engines.devices.step_file import StepFile
from engines.registry import ENDPOINT, ENGINES
from engines.server import ResolvedServer, check_modelled, check_runtime
from harness import kinds
from harness.client.client_params import ClientParams
from harness.endpoints.target import TargetParams
from harness.experiments.experiment import CHOICES, Experiment
from harness.experiments.identity import code_hash, roots_of
from harness.experiments.point import Point, Setup
from harness.experiments.profiles import given_profile, profile_of
from workloads.errors import UserError, unknown, validate
from workloads.registry import WORKLOADS, serves

if TYPE_CHECKING:
    from workloads.trace import Trace


Traces = dict[tuple[str, str, int], "Trace"]
"""Traces by workload, parameters (JSON) and seed."""

KEPT_TURNS = 5_000_000
"""Turns of the traces that are kept while points are made: [chosen] two gigabytes. Older traces are made again where
they are needed."""

MOST_POINTS = 100_000
"""Points of one experiment, unless somebody confirms more: [chosen] ten minutes to expand."""


def expand(experiment: Experiment, traces: Traces | None = None, most: float = MOST_POINTS) -> list[Point]:
    """Return all points, in the order engines, grid, seeds. UserError for anything that could not run, and for more
    than `most` points. `traces`: those made so far, for experiments that share some; new ones are added."""
    check_names(experiment)
    _check_size(experiment, most)
    cells = [*_cells(experiment)]
    known = {name for cell in cells for fields in cell.fields.values() for name in fields}
    for name in [*experiment.set, *experiment.grid, *experiment.along]:
        if name not in known:
            raise _unknown(name, known, experiment)
    systems: list[BaseModel] = [
        NoParams() if cell.engine == ENDPOINT else ENGINES[cell.engine].read(cell.own("engine"))
        for cell in cells
    ]
    _check_used(cells, systems)
    given = given_profile(experiment.profile, experiment.device)
    traces = {} if traces is None else traces
    kept = sum(map(len, traces.values()))
    points: dict[str, Point] = {}
    for cell, system in zip(cells, systems, strict=True):
        setup = _setup(experiment, cell, system, given)
        specs = _specs(experiment.workload, cell.engine, cell.own("engine"))
        code = code_hash(experiment.device, roots_of(*specs))
        stored = json.dumps(setup.workload.model_dump(mode="json"), sort_keys=True)
        for seed in experiment.seeds:
            key = (experiment.workload, stored, seed)
            if key not in traces:
                traces[key] = WORKLOADS[experiment.workload].generate(setup.workload, seed)
                kept += len(traces[key])
            trace = traces[key]
            while kept > KEPT_TURNS and len(traces) > 1:
                kept -= len(traces.pop(next(iter(traces))))
            point = _point(
                setup,
                trace,
                engine=cell.engine,
                device=experiment.device,
                workload=experiment.workload,
                workload_params=setup.workload.model_dump(mode="json"),
                seed=seed,
                code_hash=code,
                axes=tuple(experiment.grid),
            )
            _check(experiment.device, cell.engine, point.setup, trace)
            # An axis that this engine does not have yields the same point again: it is measured once.
            points.setdefault(point.id, point)
    return list(points.values())


def point_of(
    trace: Trace,
    engine: str,
    *,
    system: Mapping[str, object] | None = None,
    server: Mapping[str, object] | None = None,
    client: Mapping[str, object] | None = None,
    seed: int = 0,
    device: str = "virtual",
    profile: StepFile | None = None,
) -> Point:
    """Return a point outside of any experiment, which plays `trace` as it stands and has no record. `system`, `server`
    and `client` are settings by name. UserError for invalid ones."""
    served = serves(trace)
    setup = Setup(
        kind=kinds.named(served),
        workload=NoParams(),
        client=validate(ClientParams, client or {}, "client parameters"),
        system=ENGINES[engine].read(system or {}),
        server=ResolvedServer.of(validate(kinds.server_model(served), server or {}, "server parameters")),
        step_file=profile,
    )
    return _point(
        setup,
        trace,
        engine=engine,
        device=device,
        workload=trace.header.generator,
        workload_params={},
        seed=seed,
        code_hash="",
    )


def _setup(experiment: Experiment, cell: _Cell, system: BaseModel, given: StepFile | None) -> Setup:
    """Resolve the settings of a cell. UserError for one that is wrong, or changes nothing on this device."""
    workload, device = WORKLOADS[experiment.workload], experiment.device
    params = validate(workload.Params, cell.own("workload"), "workload parameters")
    client = validate(ClientParams, cell.own("client"), "client parameters")
    kind, where = kinds.named(workload.serves), "server parameters"
    if cell.engine == ENDPOINT:
        return Setup(kind, params, client, system, validate(TargetParams, cell.own("server"), where))
    server = validate(kinds.server_model(workload.serves), cell.own("server"), where)
    resolved = ResolvedServer.of(server)
    step_file = profile_of(given, experiment.profile, device, server, resolved.deployment)
    check_modelled(server, device, step_file.stages if isinstance(step_file, Profile) else ())
    return Setup(kind, params, client, system, resolved, step_file)


def _check(device: str, engine: str, setup: Setup, trace: Trace) -> None:
    server = setup.server
    if isinstance(server, TargetParams):
        kinds.live_kind(setup.kind).check_target(server, trace, setup.client.c)
        return
    check_runtime(server.params, device)
    check_device(device, server.deployment)
    check_said(device, server.deployment, trace)
    kinds.check(setup.kind, engine, setup.system, setup.client, server.deployment, trace)
    if device in SOCKET_DEVICES:
        kinds.live_kind(setup.kind)


def _point(setup: Setup, trace: Trace, *, engine: str, **facts: Any) -> Point:
    setup = replace(setup, kind=kinds.kind_of(trace))  # a file's users may be of any
    server = setup.server if isinstance(setup.server, TargetParams) else setup.server.params
    return Point(
        engine=engine,
        client_params=setup.client.model_dump(mode="json"),
        server_params=server.model_dump(mode="json"),
        engine_params={} if engine == ENDPOINT else ENGINES[engine].stored(setup.system),
        trace_hash=trace.header.hash,
        profile=None if setup.step_file is None else setup.step_file.model_dump(mode="json"),
        resolved=setup,
        **facts,
    )


@dataclass(frozen=True)
class _Cell:
    """An engine with settings, without a seed. `fields`: the declarations of its parameters by group."""

    engine: str
    settings: Mapping[str, object]
    fields: Mapping[str, Mapping[str, FieldInfo]]

    def own(self, group: str) -> dict[str, object]:
        """Return the settings of one group."""
        return {name: value for name, value in self.settings.items() if name in self.fields[group]}


def _cells(experiment: Experiment) -> Iterator[_Cell]:
    """Return the cells of an experiment. UserError for settings that cannot be combined."""
    workload = WORKLOADS[experiment.workload]
    for engine, cell in itertools.product(experiment.engines, itertools.product(*experiment.grid.values())):
        settings = {**experiment.set, **dict(zip(experiment.grid, cell, strict=True))}
        for name, values in experiment.along.items():
            first = next(iter(experiment.grid.values()))
            settings[name] = values[first.index(cell[0])]
        server = TargetParams if engine == ENDPOINT else kinds.server_model(workload.serves)
        models = {"workload": workload.Params, "client": ClientParams, "server": server}
        fields: dict[str, Mapping[str, FieldInfo]] = {name: m.model_fields for name, m in models.items()}
        left = {n: v for n, v in settings.items() if not any(n in each for each in fields.values())}
        fields["engine"] = {} if engine == ENDPOINT else ENGINES[engine].fields(left)
        yield _Cell(engine, settings, fields)


def _specs(workload: str, engine: str, settings: Mapping[str, object]) -> list[Any]:
    """Return the components of a cell, for the ids of its points: workload, kind, system, and the parts of that
    system."""
    found: list[Any] = [WORKLOADS[workload], kinds.named(WORKLOADS[workload].serves)]
    return found if engine == ENDPOINT else [*found, *ENGINES[engine].code(settings)]


def code_of(point: Point) -> str:
    """Return the hash of the code of `point` on this machine. Its own `code_hash` is that of where it was expanded."""
    return code_hash(point.device, roots_of(*_specs(point.workload, point.engine, point.engine_params)))


def parameters(experiment: Experiment) -> dict[str, str]:
    """Return every parameter that some cell of the experiment has, with its group. UserError for settings that cannot
    be combined."""
    return {
        name: group for cell in _cells(experiment) for group, fields in cell.fields.items() for name in fields
    }


def is_whole(experiment: Experiment, name: str) -> bool:
    """Return whether the parameter is a whole number, not any number. UserError where it is not a number, or no cell
    has it."""
    known = parameters(experiment)
    if name not in known:
        raise _unknown(name, known, experiment)
    kinds = {
        kind
        for field in _declared(experiment, name)
        for kind in (field.annotation, *get_args(field.annotation))
    }
    if bool in kinds or kinds.isdisjoint((int, float)):
        raise UserError(f"parameter {name!r} is not a number; use one that is, such as c.")
    return float not in kinds


def largest(experiment: Experiment, name: str) -> float:
    """Return the largest allowed value of a parameter; infinity where it has no limit of its own."""
    limits = [getattr(rule, "le", None) for field in _declared(experiment, name) for rule in field.metadata]
    return min((limit for limit in limits if limit is not None), default=float("inf"))


def _declared(experiment: Experiment, name: str) -> list[FieldInfo]:
    return [fields[name] for cell in _cells(experiment) for fields in cell.fields.values() if name in fields]


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


def _check_used(cells: Sequence[_Cell], systems: Sequence[BaseModel]) -> None:
    """Raise UserError when a setting has no effect on any engine that has it. `systems`: the engines' parameters."""
    idle: dict[str, str] = {}
    used: set[str] = set()
    for cell, params in zip(cells, systems, strict=True):
        if cell.engine == ENDPOINT:
            return
        unused = ENGINES[cell.engine].unused(params)
        idle |= {name: f"{unused[name]} ({cell.engine})" for name in cell.settings if name in unused}
        used |= cell.settings.keys() - unused.keys()
    for name, reason in idle.items():
        if name not in used:
            raise UserError(f"{name} is set and changes nothing: {reason}; leave it out.")


def _unknown(name: str, known: Iterable[str], experiment: Experiment) -> UserError:
    who = f"workload {experiment.workload} and {' and '.join(experiment.engines)}"
    having = owners(name)
    if having:
        return UserError(
            f"{name} is a parameter of {' and of '.join(having)}, which {who} do not have; set that too."
        )
    names = [*known, *CHOICES]
    if not difflib.get_close_matches(name, names, n=1, cutoff=0.8):
        others = [other for other, spec in WORKLOADS.items() if name in spec.Params.model_fields]
        if others:
            return UserError(
                f"{name} is a parameter of workload {', '.join(others)}, which {who} do not have; leave it out, or set "
                "workload too."
            )
    return unknown("parameter", name, names, f" for {who}")


def check_names(experiment: Experiment) -> None:
    """Raise UserError for an unknown engine, workload or device."""
    for name in experiment.engines:
        _check_live(name, experiment.device)
    named = [("engine", name, ENGINES) for name in experiment.engines if name != ENDPOINT]
    named += [("workload", experiment.workload, WORKLOADS)]
    for what, name, registry in named:
        if name not in registry:
            raise unknown(what, name, registry)
    known_device(experiment.device)


def _check_live(engine: str, device: str) -> None:
    """Raise UserError unless engine and device are both live or both not."""
    if engine == ENDPOINT and device != "live":
        raise UserError(
            f"engine {ENDPOINT!r} is whatever stands behind a url, which device {device} cannot run; set engine too, "
            "for example --set engine=liveserve, or leave the device out to call the endpoint again."
        )
    if engine != ENDPOINT and device == "live":
        raise UserError(
            f"device live calls an endpoint that runs already, not engine {engine!r}; use rehearse live URL, or device "
            "sockets for a server of our own."
        )
