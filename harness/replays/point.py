"""A point that a worker replays: a system of ours serves its trace on a device."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, InstanceOf

from engines.devices.step_file import StepFile
from engines.server import ResolvedServer
from harness.client.client_params import ClientParams
from harness.experiments.point import Point
from harness.replays.kinds.kind import ReplayKind
from workloads.devices import REAL_DEVICES

if TYPE_CHECKING:
    from workloads.trace import Trace


@dataclass(frozen=True)
class ReplaySetup:
    """A point's settings as the objects that its worker uses: names are looked up, defaults filled in, all is valid.

    `kind`: how its users play the trace and what is measured. `workload`, `client`, `system`: parameters of the
    workload, the client and the engine. `server`: the server to build. `step_file`: the profile of step times that it
    replays with.
    """

    kind: ReplayKind[Any]
    workload: BaseModel
    client: ClientParams
    system: BaseModel
    server: ResolvedServer
    step_file: StepFile | None = None


class ReplayPoint(Point):
    """A point of a system of ours."""

    setup: InstanceOf[ReplaySetup] = Field(exclude=True, repr=False)

    def trace(self) -> Trace:
        """Make its trace anew. ValueError as `Point.generate`."""
        return self.generate(self.setup.workload)

    def sources(self, starts_s: Collection[float] | None = None) -> dict[str, Any]:
        """Return `{"step_times": {stage: source of its times}}` on a modelled device; else nothing."""
        from harness.replays.step_times import step_times

        if self.device in REAL_DEVICES:
            return {}
        return {"step_times": step_times(self.setup.server, self.setup.step_file, starts_s)}
