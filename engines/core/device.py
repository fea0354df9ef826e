"""The device protocol: what runs a scheduled step. Virtual devices and real executors take the same place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engines.core.request import StageRequest


@dataclass(slots=True)
class Row:
    """One request's share of a step: new tokens on top of a context, and whether a token is sampled."""

    request_id: str
    tokens: int
    context: int
    samples: bool


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
