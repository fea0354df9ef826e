"""A virtual device whose step times are handed in: logged ones, a fitted model's, or both."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engines.core.device import Row
from engines.core.request import StageRequest
from engines.devices.watched import Rhythm

Seconds = Callable[[Sequence[Row], float], float]
"""How long the step of these rows takes that begins at this time (s)."""


class ChargedDevice:
    """Sleeps for `seconds(rows, now)` and makes up tokens below `vocab`.

    A step is charged from the end of the one before it, as the loop's own work between two steps takes no virtual time.
    `canary_s(now)`: what a canary that is due now would take; None without canaries.
    """

    modelled = True

    def __init__(
        self, vocab: int, seconds: Seconds, canary_s: Callable[[float], float] | None = None
    ) -> None:
        self._vocab = vocab
        self._seconds = seconds
        self._canary_s = canary_s
        self._rhythm = Rhythm()
        self._loop = asyncio.get_running_loop()

    async def execute(
        self, scheduled: Any, rows: Sequence[Row], requests: Mapping[str, StageRequest]
    ) -> list[list[int] | None]:
        """Implements `engines.core.device.Device`."""
        if not rows:
            return []
        now = self._loop.time()
        seconds = self._seconds(rows, now)
        if self._canary_s is not None and self._rhythm.due(now):
            seconds += self._canary_s(now)
        await asyncio.sleep(seconds)
        vocab = self._vocab
        return [[requests[row.request_id].made_up(vocab)] if row.samples else [] for row in rows]

    def interrupt(self, request_ids: frozenset[str]) -> None:
        """Steps run out as charged: a barge-in takes effect at their end."""
