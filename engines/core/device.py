"""The device protocol: what runs a scheduled step. Virtual devices and real executors take the same place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

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
        """Add a row."""
        self.requests += 1
        self.context += context
        if far:
            self.far += 1
            self.far_context += context

    def remove(self, context: int, far: bool) -> None:
        """Remove a row."""
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
    """Runs one step at a time for one stage replica, and can let go of requests at a layer boundary.

    `modelled`: it makes its tokens up, so that it needs a step's rows and not what vLLM tells a worker.
    """

    modelled: bool

    async def execute(
        self, scheduled: Any, rows: Sequence[Row], requests: Mapping[str, StageRequest]
    ) -> list[list[int] | None]:
        """Run the step vLLM scheduled (`scheduled` is its SchedulerOutput, or None); return sampled ids per row.

        None for a row that an interruption dropped: nothing of it counts as computed. A step without rows only tells
        a worker who has finished.
        """
        ...

    def interrupt(self, request_ids: frozenset[str]) -> None:
        """Drop these requests from the step under way at its next layer boundary; it ends there if none is left.

        Past the last boundary, or without a step, nothing happens.
        """
        ...


class SummingDevice(Protocol):
    """A modelled device that takes some rows as sums (`takes_sums`). None of these can leave the step."""

    takes_sums: bool

    async def execute(
        self, scheduled: Any, rows: Sequence[Row], requests: Mapping[str, StageRequest], summed: SummedRows
    ) -> list[list[int] | None]:
        """Computes as `Device.execute` does, `summed` besides `rows`."""
        ...


Ended = Callable[[list[list[int] | None]], None]
"""Is called at the end of a step with what `Device.execute` returns."""


class CallbackDevice(Protocol):
    """A modelled device that can tell of a step's end by a callback (`calls_back`), so that no task has to wait."""

    calls_back: bool

    def start(self, rows: Sequence[Row], requests: Mapping[str, StageRequest], ended: Ended) -> None:
        """Begins what `Device.execute` runs, of at least one row."""
        ...

    def repeat(self, rows: Sequence[Row]) -> None:
        """Begin the same step again: the same requests, all of them decodes, and each row a token further."""
        ...
