"""A point: one measured configuration and seed, what a record stores.

`harness.replays.point` and `harness.live.point` add what it takes to measure it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from harness.experiments.experiment import SCHEMA_VERSION
from workloads.registry import WORKLOADS

if TYPE_CHECKING:
    from workloads.trace import Trace

Parameters = dict[str, JsonValue]
"""Values by name, as a record stores them."""


class Point(BaseModel):
    """One measured configuration and seed, as a record stores it."""

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
    profile: dict[str, Any] | None = Field(default=None, description="content of the profile that it replays with")
    axes: tuple[str, ...] = Field(
        default=(), description="parameters that the experiment varies; for display, not in the id"
    )

    def generate(self, workload: BaseModel, users_seed: int | None = None) -> Trace:
        """Make its trace anew from the parameters of its workload, drawn from `users_seed` (None: its own seed).
        ValueError when it is not the trace of the point's hash: then a generator is not deterministic, or its input has
        changed."""
        trace = WORKLOADS[self.workload].generate(workload, self.seed if users_seed is None else users_seed)
        if trace.header.hash != self.trace_hash:
            raise ValueError(f"the trace changed since the run began: {trace.header.hash}, not {self.trace_hash}")
        return trace

    def sources(self, starts_s: Collection[float] | None = None) -> dict[str, Any]:
        """Return where its numbers come from, as its manifest says it. `starts_s`: begins of its requests, where
        known."""
        return {}

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
