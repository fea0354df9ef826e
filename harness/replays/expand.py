"""The points of an experiment with systems of ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from engines.composition import NoParams, owners
from engines.deployments.available import check as check_device
from engines.deployments.available import check_said
from engines.devices.profile import Profile
from engines.devices.step_file import StepFile
from engines.registry import ENGINES
from engines.server import ResolvedServer, check_modelled, check_runtime
from harness.client.client_params import ClientParams
from harness.experiments import grid
from harness.experiments.experiment import Experiment
from harness.experiments.grid import MOST_POINTS, Cell, Fields, Traces
from harness.experiments.identity import code_hash, roots_of
from harness.experiments.point import Point
from harness.replays import kinds
from harness.replays.kinds.kind import Fronted, ReplayKind
from harness.replays.point import ReplayPoint, ReplaySetup
from harness.replays.profiles import given_profile, profile_of
from workloads.errors import UserError, validate
from workloads.registry import WORKLOADS, serves

if TYPE_CHECKING:
    from workloads.trace import Trace


class Systems:
    """The names of systems and their parameters. Implements `harness.experiments.grid.Schema`."""

    engines = ENGINES

    def fields(self, experiment: Experiment, engine: str, settings: Mapping[str, object]) -> Fields:
        workload = WORKLOADS[experiment.workload]
        models = {"workload": workload.Params, "client": ClientParams, "server": kinds.server_model(workload.serves)}
        fields = {group: model.model_fields for group, model in models.items()}
        left = {n: v for n, v in settings.items() if not any(n in each for each in fields.values())}
        return {**fields, "engine": ENGINES[engine].fields(left)}

    def owners(self, name: str) -> Sequence[str]:
        return owners(name)


SYSTEMS = Systems()


def expand(experiment: Experiment, traces: Traces | None = None, most: float = MOST_POINTS) -> list[ReplayPoint]:
    """Return all points, in the order engines, grid, seeds. UserError for anything that could not run, and for more
    than `most` points. `traces`: those made so far, for experiments that share some; new ones are added."""
    cells = grid.checked_cells(experiment, SYSTEMS, most)
    systems = [ENGINES[cell.engine].read(cell.groups["engine"]) for cell in cells]
    _check_used(cells, systems)
    return grid.points(experiment, [*_makers(experiment, cells, systems)], traces)


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
) -> ReplayPoint:
    """Return a point outside of any experiment, which plays `trace` as it stands and has no record. `system`, `server`
    and `client` are settings by name. UserError for invalid ones."""
    setup = ReplaySetup(
        kind=kinds.kind_of(trace),
        workload=NoParams(),
        client=validate(ClientParams, client or {}, "client parameters"),
        system=ENGINES[engine].read(system or {}),
        server=ResolvedServer.of(validate(kinds.server_model(serves(trace)), server or {}, "server parameters")),
        step_file=profile,
    )
    return _point(setup, trace, engine, device, trace.header.generator, seed, code_hash="")


@dataclass(frozen=True)
class _Maker:
    """Makes the points of a cell. Implements `harness.experiments.grid.Maker`."""

    experiment: Experiment
    engine: str
    workload: BaseModel
    setup: ReplaySetup
    code_hash: str

    def users_seed(self, seed: int) -> int:
        """Return the point's own seed: all engines of a cell serve the same users."""
        return seed

    def point(self, trace: Trace, seed: int) -> ReplayPoint:
        device = self.experiment.device
        setup = replace(self.setup, kind=kinds.kind_of(trace))  # a file's users may be of any
        server = setup.server
        check_runtime(server.params, device)
        check_device(device, server.deployment)
        check_said(device, server.deployment, trace)
        self._check_served(setup.kind, trace)
        setup.kind.check(setup.system, setup.client, server.deployment, trace)
        return _point(
            setup,
            trace,
            self.engine,
            device,
            self.experiment.workload,
            seed,
            code_hash=self.code_hash,
            axes=tuple(self.experiment.grid),
        )

    def _check_served(self, kind: ReplayKind[Any], trace: Trace) -> None:
        """Raise UserError when the system serves another kind of workload, or its parameters do not fit it."""
        system, setup = ENGINES[self.engine], self.setup
        wanted = kind.served_by if isinstance(kind, Fronted) else kind.name
        if system.kind != wanted:
            able = ", ".join(name for name, other in ENGINES.items() if other.kind == wanted)
            raise UserError(
                f"engine {self.engine!r} serves {system.kind}, and workload {trace.header.generator!r} is made of "
                f"{kind.name}; set engine to one of: {able}, or use another workload."
            )
        system.check(setup.system)
        system.check_deployment(setup.system, setup.server.deployment)


def _makers(experiment: Experiment, cells: Sequence[Cell], systems: Sequence[BaseModel]) -> Iterator[_Maker]:
    """Resolve the settings of each cell. UserError for one that is wrong, or changes nothing on this device."""
    workload, device = WORKLOADS[experiment.workload], experiment.device
    given = given_profile(experiment.profile, device)
    for cell, system in zip(cells, systems, strict=True):
        params = validate(workload.Params, cell.groups["workload"], "workload parameters")
        client = validate(ClientParams, cell.groups["client"], "client parameters")
        server = validate(kinds.server_model(workload.serves), cell.groups["server"], "server parameters")
        resolved = ResolvedServer.of(server)
        step_file = profile_of(given, experiment.profile, device, server, resolved.deployment)
        check_modelled(server, device, step_file.stages if isinstance(step_file, Profile) else ())
        setup = ReplaySetup(kinds.named(workload.serves), params, client, system, resolved, step_file)
        roots = _roots(experiment.workload, cell.engine, cell.groups["engine"])
        yield _Maker(experiment, cell.engine, params, setup, code_hash(device, roots))


def _point(
    setup: ReplaySetup, trace: Trace, engine: str, device: str, workload: str, seed: int, **facts: Any
) -> ReplayPoint:
    return ReplayPoint(
        engine=engine,
        device=device,
        workload=workload,
        workload_params=setup.workload.model_dump(mode="json"),
        client_params=setup.client.model_dump(mode="json"),
        server_params=setup.server.params.model_dump(mode="json"),
        engine_params=ENGINES[engine].stored(setup.system),
        seed=seed,
        trace_hash=trace.header.hash,
        profile=None if setup.step_file is None else setup.step_file.model_dump(mode="json"),
        setup=setup,
        **facts,
    )


def _roots(workload: str, engine: str, settings: Mapping[str, object]) -> tuple[str, ...]:
    """Return the modules of the components of a cell: workload, kind, system, and the parts of that system."""
    kind = kinds.named(WORKLOADS[workload].serves)
    return roots_of(WORKLOADS[workload], kind, *ENGINES[engine].code(settings))


def code_of(point: Point) -> str:
    """Return the hash of the code of `point` on this machine. Its own `code_hash` is that of where it was expanded."""
    return code_hash(point.device, _roots(point.workload, point.engine, point.engine_params))


def _check_used(cells: Sequence[Cell], systems: Sequence[BaseModel]) -> None:
    """Raise UserError when a setting has no effect on any engine that has it. `systems`: the engines' parameters."""
    idle: dict[str, str] = {}
    used: set[str] = set()
    for cell, params in zip(cells, systems, strict=True):
        unused = ENGINES[cell.engine].unused(params)
        idle |= {name: f"{unused[name]} ({cell.engine})" for name in cell.settings if name in unused}
        used |= cell.settings.keys() - unused.keys()
    for name, reason in idle.items():
        if name not in used:
            raise UserError(f"{name} is set and changes nothing: {reason}; leave it out.")
