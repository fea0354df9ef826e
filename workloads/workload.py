"""Workloads: a name, parameters, and how a trace is made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from workloads.deferred import Deferred

if TYPE_CHECKING:
    from workloads.trace import Trace

Kind = str
"""turns: users wait for replies. frames: audio never stops, and a turn of the trace is a frame of it. Other packages
have more."""


@dataclass(frozen=True)
class Workload:
    """A named way to make traces: `generate(Params(...), seed)`; `serves` is what the engine must serve."""

    name: str
    summary: str
    params: type[BaseModel] | Deferred
    generate: Callable[[Any, int], Trace]
    serves: Kind = "turns"

    @property
    def Params(self) -> type[BaseModel]:
        return self.params.load() if isinstance(self.params, Deferred) else self.params
