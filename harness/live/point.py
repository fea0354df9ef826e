"""A point that a live run measures: users call an endpoint that runs already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field, InstanceOf

from harness.client.client_params import ClientParams
from harness.experiments.point import Point
from harness.live.endpoints.target import TargetParams
from harness.live.kinds.kind import LiveKind

if TYPE_CHECKING:
    from workloads.trace import Trace


@dataclass(frozen=True)
class LiveSetup:
    """A point's settings as the objects that its run uses. `kind`: how its users call the endpoint and what is
    measured. `workload`, `client`: parameters of the workload and the client. `target`: the endpoint. `users_seed`: the
    seed that its users are drawn from; None: the point's own."""

    kind: LiveKind
    workload: BaseModel
    client: ClientParams
    target: TargetParams
    users_seed: int | None = None


class LivePoint(Point):
    """A point of an endpoint."""

    setup: InstanceOf[LiveSetup] = Field(exclude=True, repr=False)

    def trace(self) -> Trace:
        """Make its trace anew. ValueError as `Point.generate`."""
        return self.generate(self.setup.workload, self.setup.users_seed)
