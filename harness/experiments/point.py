"""A point: one measured configuration and seed, what a worker runs and a record stores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, Field

from engines.registry import ENDPOINT, ENGINES
from engines.server import ServerParams
from harness import kinds
from harness.client.client_params import ClientParams
from harness.endpoints.target import TargetParams
from harness.experiments.experiment import SCHEMA_VERSION
from workloads.errors import validate
from workloads.registry import WORKLOADS, serves

if TYPE_CHECKING:
    from workloads.trace import Trace


class Point(BaseModel):
    """One measured configuration and seed, fully resolved: what a worker runs and a record stores.

    `trace_params`, `client`, `server` (or `target`, of an endpoint) and `system` are the models that its parameters
    were validated as; UserError where those of a stored point are no longer understood.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = SCHEMA_VERSION
    engine: str
    device: str
    workload: str
    workload_params: dict[str, Any]
    client_params: dict[str, Any]
    server_params: dict[str, Any]
    engine_params: dict[str, Any]
    seed: int
    trace_hash: str
    code_hash: str
    profile: dict[str, Any] | None = Field(None, description="content of the profile that it replays with")
    axes: tuple[str, ...] = Field(
        (), description="parameters that the experiment varies; for display, not in the id"
    )

    @classmethod
    def of(
        cls,
        trace: Trace,
        engine: str,
        *,
        system: Mapping[str, Any] | None = None,
        server: Mapping[str, Any] | None = None,
        client: Mapping[str, Any] | None = None,
        seed: int = 0,
        device: str = "virtual",
        profile: Mapping[str, Any] | None = None,
    ) -> Self:
        """A point outside of any experiment, which plays `trace` as it stands and has no record.

        `system`, `server` and `client` are settings by name; UserError for one that cannot be.
        """
        values = {"system": system or {}, "server": server or {}, "client": client or {}}
        models = {
            "system": ENGINES[engine].model(values["system"]),
            "server": kinds.server_model(serves(trace)),
            "client": ClientParams,
        }
        read = {name: validate(model, values[name], f"{name} parameters") for name, model in models.items()}
        identity = {"engine": engine, "device": device, "seed": seed, "profile": profile}
        of_trace = {
            "workload": trace.header.generator,
            "workload_params": {},
            "trace_hash": trace.header.hash,
        }
        return cls.with_models(read, **identity, **of_trace, code_hash="")

    @classmethod
    def with_models(cls, read: Mapping[str, BaseModel], **fields: Any) -> Self:
        """A point with these models, by the names that it has for them."""
        stored = {STORED[name]: model.model_dump(mode="json") for name, model in read.items()}
        point = cls.model_validate({**stored, **fields})
        vars(point).update(read)
        return point

    @cached_property
    def trace_params(self) -> BaseModel:
        return validate(WORKLOADS[self.workload].Params, self.workload_params, "workload parameters")

    @cached_property
    def client(self) -> ClientParams:
        return validate(ClientParams, self.client_params, "client parameters")

    @cached_property
    def server(self) -> ServerParams:
        model = kinds.server_model(WORKLOADS[self.workload].serves)
        return validate(model, self.server_params, "server parameters")

    @cached_property
    def target(self) -> TargetParams:
        return validate(TargetParams, self.server_params, "server parameters")

    @cached_property
    def system(self) -> BaseModel:
        return validate(
            system_model(self.engine, self.engine_params), self.engine_params, "engine parameters"
        )

    def __getstate__(self) -> dict[Any, Any]:
        """The models go along, but for the class of `system`, which a composition makes where it arrives."""
        state = super().__getstate__()
        read = dict(state["__dict__"])
        if "system" in read:
            read["system"] = dict(read["system"])
        return {**state, "__dict__": read}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__(state)
        if "system" in vars(self):
            values = vars(self)["system"]
            vars(self)["system"] = system_model(self.engine, values).model_construct(**values)

    def trace(self) -> Trace:
        """Its trace, made anew. ValueError when it is not the one that the point was named after: then a generator is
        not deterministic, or what it reads has changed."""
        trace = WORKLOADS[self.workload].generate(self.trace_params, self.seed)
        if trace.header.hash != self.trace_hash:
            raise ValueError(
                f"the trace changed since the run began: {trace.header.hash}, not {self.trace_hash}"
            )
        return trace

    @cached_property
    def id(self) -> str:
        """Its id, which `id_of` derives from every field."""
        return id_of(self.model_dump(mode="json"))

    @property
    def params(self) -> dict[str, Any]:
        """All parameters in one mapping; names are unique over the four groups."""
        return {**self.workload_params, **self.client_params, **self.server_params, **self.engine_params}

    @property
    def label(self) -> str:
        """Name for people, such as `liveserve c=16 p=0.7 seed=2`."""
        cell = [f"{name}={self.params[name]}" for name in self.axes if name in self.params]
        return " ".join([self.engine, *cell, f"seed={self.seed}"])


STORED = {
    "trace_params": "workload_params",
    "client": "client_params",
    "server": "server_params",
    "target": "server_params",
    "system": "engine_params",
}
"""Under which name a point stores what each of its models holds."""


def id_of(point: Mapping[str, Any]) -> str:
    """First 16 hexadecimal digits of the SHA-256 over the canonical JSON of everything of a point but `axes`: also of
    one that was stored when points had fewer fields."""
    resolved = {name: value for name, value in point.items() if name != "axes"}
    text = json.dumps(resolved, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class NoParams(BaseModel):
    """Parameters of an engine behind another party's endpoint: none."""


def system_model(engine: str, settings: Mapping[str, Any]) -> type[BaseModel]:
    return NoParams if engine == ENDPOINT else ENGINES[engine].model(settings)
