"""The points of a live experiment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel

from harness.client.client_params import ClientParams
from harness.experiments import grid
from harness.experiments.experiment import ENDPOINT, Experiment
from harness.experiments.grid import MOST_POINTS, Cell, Fields, Traces
from harness.experiments.identity import code_hash, roots_of
from harness.live import kinds
from harness.live.endpoints.target import TargetParams
from harness.live.point import LivePoint, LiveSetup
from workloads.errors import validate
from workloads.registry import WORKLOADS
from workloads.seeds import child_seed

if TYPE_CHECKING:
    from workloads.trace import Trace


class Endpoints:
    """The parameters of live runs. Implements `harness.experiments.grid.Schema`."""

    engines = (ENDPOINT,)

    def fields(self, experiment: Experiment, engine: str, settings: Mapping[str, object]) -> Fields:
        workload = WORKLOADS[experiment.workload].Params
        models = {"workload": workload, "client": ClientParams, "server": TargetParams}
        return {**{group: model.model_fields for group, model in models.items()}, "engine": {}}

    def owners(self, name: str) -> Sequence[str]:
        return ()


ENDPOINTS = Endpoints()


def expand(experiment: Experiment, traces: Traces | None = None, most: float = MOST_POINTS) -> list[LivePoint]:
    """Return all points, in the order grid, seeds. UserError for anything that could not run, and for more than `most`
    points. `traces`: those made so far, for experiments that share some; new ones are added."""
    cells = grid.checked_cells(experiment, ENDPOINTS, most)
    return grid.points(experiment, [*_makers(experiment, cells)], traces)


@dataclass(frozen=True)
class _Maker:
    """Makes the points of a cell. Implements `harness.experiments.grid.Maker`."""

    experiment: Experiment
    workload: BaseModel
    client: ClientParams
    target: TargetParams
    code_hash: str
    load: str
    """The values of the cell's axes, in words."""

    def users_seed(self, seed: int) -> int:
        """Return a seed for each load and repeat where the target has a seed of all users; else the point's own."""
        target = self.target
        if target.users_seed is None:
            return seed
        return child_seed(target.users_seed, f"repeat {seed}{'' if target.same_users else f' of {self.load}'}")

    def point(self, trace: Trace, seed: int) -> LivePoint:
        kind = kinds.kind_of(trace)
        kind.check_target(self.target, trace, self.client.c)
        return LivePoint(
            engine=ENDPOINT,
            device=self.experiment.device,
            workload=self.experiment.workload,
            workload_params=self.workload.model_dump(mode="json"),
            client_params=self.client.model_dump(mode="json"),
            server_params=self.target.model_dump(mode="json"),
            engine_params={},
            seed=seed,
            trace_hash=trace.header.hash,
            code_hash=self.code_hash,
            axes=tuple(self.experiment.grid),
            setup=LiveSetup(kind, self.workload, self.client, self.target, self.users_seed(seed)),
        )


def _makers(experiment: Experiment, cells: Sequence[Cell]) -> Iterator[_Maker]:
    workload = WORKLOADS[experiment.workload]
    code = code_hash(experiment.device, roots_of(workload, kinds.named(workload.serves)))
    for cell in cells:
        params = validate(workload.Params, cell.groups["workload"], "workload parameters")
        client = validate(ClientParams, cell.groups["client"], "client parameters")
        target = validate(TargetParams, cell.groups["server"], "server parameters")
        load = " ".join(f"{name}={cell.settings[name]}" for name in experiment.grid)
        yield _Maker(experiment, params, client, target, code, load)
