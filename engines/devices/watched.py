"""A real device whose steps are noted, with a canary kernel between them now and then.

Nothing is computed while the model runs: the rows are kept, and summed up by whoever reads them.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from engines.core.device import Device, Row
from engines.core.request import StageRequest
from engines.devices.canary import Canary

CANARY_EVERY_S = 0.5
"""[chosen] a few ms in half a second are below one per cent, and five marks fall into a window of 2 s of drift."""


class Rhythm:
    """When the next canary is due: with the first step after `CANARY_EVERY_S` of the last one's beginning."""

    _next_s = 0.0

    def due(self, now: float) -> bool:
        if now < self._next_s:
            return False
        self._next_s = now + CANARY_EVERY_S
        return True


class WatchedDevice:
    """`device` with a memory. Times in s on the loop's clock.

    `steps`: (begin, end, rows) of each step with rows, from hand-over to the return of the tokens. `canaries`:
    (begin, end, seconds of the kernel itself).
    """

    def __init__(self, device: Device, canary: Canary | None) -> None:
        self.device = device
        self.modelled = device.modelled
        self.canary = canary
        self.steps: list[tuple[float, float, Sequence[Row]]] = []
        self.canaries: list[tuple[float, float, float]] = []
        self._rhythm = Rhythm()
        self._loop = asyncio.get_running_loop()

    async def execute(
        self, scheduled: Any, rows: Sequence[Row], requests: Mapping[str, StageRequest]
    ) -> list[list[int] | None]:
        """Implements `engines.core.device.Device`; no step is under way while the canary runs."""
        loop = self._loop
        begin_s = loop.time()
        if self.canary is not None and rows and self._rhythm.due(begin_s):
            seconds = await loop.run_in_executor(None, self.canary.run)
            self.canaries.append((begin_s, loop.time(), seconds))
            begin_s = loop.time()
        sampled = await self.device.execute(scheduled, rows, requests)
        if rows:
            self.steps.append((begin_s, loop.time(), rows))
        return sampled

    def interrupt(self, request_ids: frozenset[str]) -> None:
        """Implements `engines.core.device.Device`."""
        self.device.interrupt(request_ids)
