"""The device protocol: a device runs a scheduled step. Virtual devices and real executors implement it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from engines.core.request import StageRequest


@dataclass(slots=True)
class Row:
    """One request's share of a step: new tokens on top of a context, and whether a token is sampled."""

    request_id: str
    tokens: int
    context: int
    samples: bool


@dataclass(slots=True)
class SummedRows:
    """Sums over rows that are not listed one by one: each adds one token to a context and samples the next.

    `requests`: their number; `context`: the sum of their contexts, tokens. `far`, `far_context`: the same of the rows
    whose context is as long as the reach of windowed layers, or longer.
    """

    requests: int = 0
    context: int = 0
    far: int = 0
    far_context: int = 0

    def add(self, context: int, far: bool) -> None:
        self.requests += 1
        self.context += context
        if far:
            self.far += 1
            self.far_context += context

    def remove(self, context: int, far: bool) -> None:
        self.requests -= 1
        self.context -= context
        if far:
            self.far -= 1
            self.far_context -= context

    def advance(self) -> None:
        """Go to the next step: each context has a token more."""
        self.context += self.requests
        self.far_context += self.far


NO_ROWS = SummedRows()


class Device(Protocol):
    """Runs one step at a time for one stage replica, and can drop requests at a layer boundary.

    `modelled`: it makes its tokens up, so it needs a step's rows but not vLLM's message to a worker.
    """

    modelled: bool

    async def execute(
        self, scheduled: Any, rows: Sequence[Row], requests: Mapping[str, StageRequest]
    ) -> list[list[int] | None]:
        """Run the step that vLLM scheduled (`scheduled`: its SchedulerOutput, or None); return sampled ids per row.

        None for a row that an interruption dropped: nothing of it counts as computed. A step without rows only tells a
        worker which requests have finished.
        """
        ...

    def interrupt(self, request_ids: frozenset[str]) -> None:
        """Drop these requests from the step under way at its next layer boundary; the step ends there if none remains.

        Past the last boundary, or without a step, nothing happens.
        """


@runtime_checkable
class SummingDevice(Protocol):
    """A modelled device that takes some rows as sums (`takes_sums`). Summed rows cannot leave the step."""

    takes_sums: bool

    async def execute(
        self, scheduled: Any, rows: Sequence[Row], requests: Mapping[str, StageRequest], summed: SummedRows
    ) -> list[list[int] | None]:
        """Do the same as `Device.execute`, with `summed` besides `rows`."""
        ...


Ended = Callable[[list[list[int] | None]], None]
"""Called at the end of a step with the result of `Device.execute`."""


@runtime_checkable
class CallbackDevice(Protocol):
    """A modelled device that can call back at a step's end (`calls_back`), so that no task has to wait."""

    calls_back: bool

    def start(self, rows: Sequence[Row], requests: Mapping[str, StageRequest], ended: Ended) -> None:
        """Begin a step of at least one row, as `Device.execute` runs it."""

    def repeat(self, rows: Sequence[Row]) -> None:
        """Begin the same step again: the same requests, all of them decodes, each row one token further."""
