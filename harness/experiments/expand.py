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
from collections.abc import Iterable, Iterator, Mapping
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
from workloads.errors import Model, UserError, unknown, validate
from workloads.registry import WORKLOADS, serves

if TYPE_CHECKING:
    from workloads.trace import Trace


Traces = dict[tuple[str, str, int], "Trace"]
"""Traces by workload, parameters (JSON) and seed."""


def expand(experiment: Experiment, traces: Traces | None = None) -> list[Point]:
    """All points, in the order engines, grid, seeds; UserError for anything that could not run.

    `traces`: those made so far, for experiments that share some; new ones are added.
    """
    check_names(experiment)
    known = parameters(experiment)
    for name in [*experiment.set, *experiment.grid, *experiment.along]:
        if name not in known:
            raise _unknown(name, known, experiment)
    cells = [(engine, settings, _system(engine, settings)) for engine, settings in _cells(experiment)]
    _check_used(cells)
    given = given_profile(experiment.profile, experiment.device)
    traces = {} if traces is None else traces
    points: dict[str, Point] = {}
    for engine, settings, system in cells:
        setup = _setup(experiment, engine, settings, system, given)
        code = code_hash(experiment.device, roots_of(*_specs(experiment.workload, engine, settings)))
        stored = json.dumps(setup.workload.model_dump(mode="json"), sort_keys=True)
        for seed in experiment.seeds:
            key = (experiment.workload, stored, seed)
            if key not in traces:
                traces[key] = WORKLOADS[experiment.workload].generate(setup.workload, seed)
            _check(experiment.device, engine, setup, traces[key])
            point = _point(
                setup,
                engine=engine,
                device=experiment.device,
                workload=experiment.workload,
                workload_params=setup.workload.model_dump(mode="json"),
                seed=seed,
                trace_hash=traces[key].header.hash,
                code_hash=code,
                axes=tuple(experiment.grid),
            )
            # An axis that this engine does not have yields the same point again: it is measured once.
            points.setdefault(point.id, point)
    return list(points.values())


def point_of(
    trace: Trace,
    engine: str,
    *,
    system: Mapping[str, Any] | None = None,
    server: Mapping[str, Any] | None = None,
    client: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str = "virtual",
    profile: StepFile | None = None,
) -> Point:
    """A point outside of any experiment, which plays `trace` as it stands and has no record.

    `system`, `server` and `client` are settings by name; UserError for one that cannot be.
    """
    setup = Setup(
        kind=kinds.kind_of(trace),
        workload=NoParams(),
        client=validate(ClientParams, client or {}, "client parameters"),
        system=ENGINES[engine].read(system or {}),
        server=ResolvedServer.of(
            validate(kinds.server_model(serves(trace)), server or {}, "server parameters")
        ),
        step_file=profile,
    )
    return _point(
        setup,
        engine=engine,
        device=device,
        workload=trace.header.generator,
        workload_params={},
        seed=seed,
        trace_hash=trace.header.hash,
        code_hash="",
    )


def _setup(
    experiment: Experiment,
    engine: str,
    settings: Mapping[str, Any],
    system: BaseModel,
    given: StepFile | None,
) -> Setup:
    """What the settings of a cell come to. UserError for one that is wrong, or changes nothing on this device."""
    workload, device = WORKLOADS[experiment.workload], experiment.device
    params = _read("workload", workload.Params, settings)
    client = _read("client", ClientParams, settings)
    kind = kinds.named(workload.serves)
    if engine == ENDPOINT:
        target = _read("server", TargetParams, settings)
        return Setup(kind, params, client, system, target)
    server = _read("server", kinds.server_model(workload.serves), settings)
    resolved = ResolvedServer.of(server)
    step_file = profile_of(given, experiment.profile, device, server, resolved.deployment)
    check_modelled(server, device, step_file.stages if isinstance(step_file, Profile) else ())
    return Setup(kind, params, client, system, resolved, step_file)


def _check(device: str, engine: str, setup: Setup, trace: Trace) -> None:
    """UserError where this trace cannot be played so."""
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


def _point(setup: Setup, *, engine: str, **facts: Any) -> Point:
    server = setup.server if isinstance(setup.server, TargetParams) else setup.server.params
    return Point(
        engine=engine,
        client_params=setup.client.model_dump(mode="json"),
        server_params=server.model_dump(mode="json"),
        engine_params={} if engine == ENDPOINT else ENGINES[engine].stored(setup.system),
        profile=None if setup.step_file is None else setup.step_file.model_dump(mode="json"),
        resolved=setup,
        **facts,
    )


def _cells(experiment: Experiment) -> Iterator[tuple[str, dict[str, Any]]]:
    """Engine and settings of each cell, without seeds."""
    for engine, cell in itertools.product(experiment.engines, itertools.product(*experiment.grid.values())):
        settings = {**experiment.set, **dict(zip(experiment.grid, cell, strict=True))}
        for name, values in experiment.along.items():
            first = next(iter(experiment.grid.values()))
            settings[name] = values[first.index(cell[0])]
        yield engine, settings


def _specs(workload: str, engine: str, settings: Mapping[str, Any]) -> list[Any]:
    """Return the components of a cell, for the ids of its points: workload, kind, system, and the parts of that
    system."""
    found: list[Any] = [WORKLOADS[workload], kinds.named(WORKLOADS[workload].serves)]
    return found if engine == ENDPOINT else [*found, *ENGINES[engine].code(settings)]


def _fields(workload: str, engine: str, settings: Mapping[str, Any]) -> dict[str, Mapping[str, FieldInfo]]:
    """The declarations of a cell's parameters by group. UserError for what cannot go together."""
    live = engine == ENDPOINT
    server = TargetParams if live else kinds.server_model(WORKLOADS[workload].serves)
    return {
        "workload": WORKLOADS[workload].Params.model_fields,
        "client": ClientParams.model_fields,
        "server": server.model_fields,
        "engine": {} if live else ENGINES[engine].fields(settings),
    }


def _system(engine: str, settings: Mapping[str, Any]) -> BaseModel:
    if engine == ENDPOINT:
        return NoParams()
    own = ENGINES[engine].fields(settings)
    return ENGINES[engine].read({name: value for name, value in settings.items() if name in own})


def code_of(point: Point) -> str:
    """The hash of the code of `point` as it stands here; its own `code_hash` is that of where it was expanded."""
    return code_hash(point.device, roots_of(*_specs(point.workload, point.engine, point.engine_params)))


def parameters(experiment: Experiment) -> dict[str, str]:
    """Every parameter that some cell of the experiment has, with its group. UserError for what cannot go together."""
    return {
        name: group
        for engine, settings in _cells(experiment)
        for group, fields in _fields(experiment.workload, engine, settings).items()
        for name in fields
    }


def is_whole(experiment: Experiment, name: str) -> bool:
    """Whether the parameter is a whole number, and not any number. UserError where it is none, or no cell has it."""
    known = parameters(experiment)
    if name not in known:
        raise _unknown(name, known, experiment)
    kinds = {
        kind
        for field in _declared(experiment, name)
        for kind in (field.annotation, *get_args(field.annotation))
    }
    if bool in kinds or kinds.isdisjoint((int, float)):
        raise UserError(f"parameter {name!r} is no number; take one that is, such as c.")
    return float not in kinds


def largest(experiment: Experiment, name: str) -> float:
    """The largest value that a parameter may have; infinity where it has no limit of its own."""
    limits = [getattr(rule, "le", None) for field in _declared(experiment, name) for rule in field.metadata]
    return min((limit for limit in limits if limit is not None), default=float("inf"))


def _declared(experiment: Experiment, name: str) -> list[FieldInfo]:
    """The declarations of a parameter in the cells that have it."""
    return [
        fields[name]
        for engine, settings in _cells(experiment)
        for fields in _fields(experiment.workload, engine, settings).values()
        if name in fields
    ]


def never_on_line(points: Iterable[Point], traces: Traces) -> str | None:
    """A sentence where a closed loop is to keep more sessions on line than its trace has, so never keeps so many."""
    by_hash = {trace.header.hash: trace for trace in traces.values()}
    short = {
        (point.params["c"], len(by_hash[point.trace_hash].sessions))
        for point in points
        if point.device != "live" and (point.params.get("c") or 0) > len(by_hash[point.trace_hash].sessions)
    }
    if not short:
        return None
    c, sessions = max(short)
    return f"c={c} and {sessions} sessions: never so many are concurrent; set sessions={c}, or a smaller c."


def _check_used(cells: Iterable[tuple[str, dict[str, Any], BaseModel]]) -> None:
    """UserError when a setting means nothing to any engine that has it. `cells`: engine, settings and parameters."""
    idle: dict[str, str] = {}
    used: set[str] = set()
    for engine, settings, params in cells:
        if engine == ENDPOINT:
            return
        unused = ENGINES[engine].unused(params)
        idle |= {name: f"{unused[name]} ({engine})" for name in settings if name in unused}
        used |= settings.keys() - unused.keys()
    for name, reason in idle.items():
        if name not in used:
            raise UserError(f"{name} is set and changes nothing: {reason}; leave it out.")


def _unknown(name: str, known: Mapping[str, str], experiment: Experiment) -> UserError:
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


def _read(group: str, model: type[Model], settings: Mapping[str, Any]) -> Model:
    chosen = {name: value for name, value in settings.items() if name in model.model_fields}
    return validate(model, chosen, f"{group} parameters")


def check_names(experiment: Experiment) -> None:
    for name in experiment.engines:
        _check_live(name, experiment.device)
    named = [("engine", name, ENGINES) for name in experiment.engines if name != ENDPOINT]
    named += [("workload", experiment.workload, WORKLOADS)]
    for what, name, registry in named:
        if name not in registry:
            raise unknown(what, name, registry)
    known_device(experiment.device)


def _check_live(engine: str, device: str) -> None:
    """UserError unless engine and device are both live or both not."""
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
