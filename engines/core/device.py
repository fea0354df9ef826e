"""The device protocol: what runs a scheduled step. Virtual devices and real executors take the same place."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from engines.core.request import StageRequest


class Row(Protocol):
    """One request's share of a step: new tokens on top of a context, and whether a token is sampled."""

    request_id: str
    tokens: int
    context: int
    samples: bool


class Device(Protocol):
    """Runs one step at a time for one stage replica."""

    async def execute(
        self, scheduled: Any, rows: Sequence[Row], requests: Mapping[str, StageRequest]
    ) -> list[list[int]]:
        """Run the step vLLM scheduled (``scheduled`` is its SchedulerOutput); return sampled ids per row."""
        ...
