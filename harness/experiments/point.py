"""A point: one measured configuration and seed, what a worker runs and a record stores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, JsonValue

from engines.devices.step_file import StepFile
from engines.server import ResolvedServer
from harness.client.client_params import ClientParams
from harness.endpoints.target import TargetParams
from harness.experiments.experiment import SCHEMA_VERSION
from harness.kinds.kind import Kind
from workloads.registry import WORKLOADS

if TYPE_CHECKING:
    from workloads.trace import Trace

Parameters = dict[str, JsonValue]
"""Values by name, as a record stores them."""


@dataclass(frozen=True)
class Setup:
    """A point's settings as the objects that its worker uses: names are looked up, defaults filled in, all is valid.

    `kind`: the kind of its workload, which says how users play it and how it is measured. `workload`, `client`,
    `system`: parameters of the workload, the client and the engine. `server`: the server to build, or the endpoint
    to call, which runs already. `step_file`: the profile of step times that it replays with.
    """

    kind: Kind
    workload: BaseModel
    client: ClientParams
    system: BaseModel
    server: ResolvedServer | TargetParams
    step_file: StepFile | None = None

    @property
    def served(self) -> ResolvedServer:
        """The server of ours that is built for it."""
        assert isinstance(self.server, ResolvedServer), "an endpoint runs already"
        return self.server

    @property
    def target(self) -> TargetParams:
        """The endpoint that it calls."""
        assert isinstance(self.server, TargetParams), "a server of ours has no address yet"
        return self.server


class Point(BaseModel):
    """One measured configuration and seed. A record stores all fields but `resolved`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = SCHEMA_VERSION
    engine: str
    device: str
    workload: str
    workload_params: Parameters
    client_params: Parameters
    server_params: Parameters
    engine_params: Parameters
    seed: int
    trace_hash: str
    code_hash: str
    profile: dict[str, Any] | None = Field(None, description="content of the profile that it replays with")
    axes: tuple[str, ...] = Field(
        (), description="parameters that the experiment varies; for display, not in the id"
    )
    resolved: InstanceOf[Setup] | None = Field(
        None,
        exclude=True,
        repr=False,
        description="read it as `setup`; None where the point was read from its record",
    )

    @property
    def setup(self) -> Setup:
        """The resolved settings. ValueError for a point that was read from its record."""
        if self.resolved is None:
            raise ValueError(f"point {self.id} was read from its record; expand its experiment to run it")
        return self.resolved

    def trace(self) -> Trace:
        """Make its trace anew. ValueError when it is not the trace of the point's hash: then a generator is not
        deterministic, or its input has changed."""
        trace = WORKLOADS[self.workload].generate(self.setup.workload, self.seed)
        if trace.header.hash != self.trace_hash:
            raise ValueError(
                f"the trace changed since the run began: {trace.header.hash}, not {self.trace_hash}"
            )
        return trace

    @cached_property
    def id(self) -> str:
        """The id, which `id_of` derives from every fact."""
        return id_of(self.model_dump(mode="json"))

    @property
    def params(self) -> Parameters:
        """All parameters in one mapping; names are unique over the four groups."""
        return {name: value for group in GROUPS for name, value in getattr(self, group).items()}

    @property
    def label(self) -> str:
        """Name for people, such as `liveserve c=16 p=0.7 seed=2`."""
        cell = [f"{name}={self.params[name]}" for name in self.axes if name in self.params]
        return " ".join([self.engine, *cell, f"seed={self.seed}"])


GROUPS = ("workload_params", "client_params", "server_params", "engine_params")
"""The fields of a point that hold parameters."""


def id_of(point: Mapping[str, Any]) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 over a point's canonical JSON without `axes`.

    `point` is a mapping, because an older record may lack fields that points have now: its id stays the same.
    """
    facts = {name: value for name, value in point.items() if name != "axes"}
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
