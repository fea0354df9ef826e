"""A real device that notes its steps, with a canary kernel between them at times; and a virtual one with given step
times.

Nothing is computed while the model runs: the rows are kept, and their reader sums them up.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from engines.core.device import Device, Row
from engines.core.request import StageRequest

ROWS = 16
"""Rows of each product: [chosen] a small decode batch, bound by the weights it reads."""

SIDE = 1024
"""Each weight matrix has SIDE x SIDE numbers."""

MOST_BYTES = {"cpu": 64e6, "cuda": 2e9}
"""[chosen] a few ms on a core and on an H200; larger than their caches."""


class Canary:
    """A fixed piece of work whose own time shows the machine's present speed: matrix products over about `weight_bytes`
    of weights on `device` ("cpu" or "cuda").

    A shared machine drifts by tens of per cent between seconds, and thread time drifts with it. Only a kernel with the
    model's own memory profile follows its steps (we measured: matrix products over as many bytes of weights,
    correlation 0.94; a sum, a product within the cache or a Python loop do not help).
    """

    def __init__(self, weight_bytes: float, device: str) -> None:
        self._cuda = device == "cuda"
        dtype = torch.bfloat16 if self._cuda else torch.float32
        matrix_bytes = SIDE * SIDE * dtype.itemsize
        count = max(1, round(min(weight_bytes, MOST_BYTES[device]) / matrix_bytes))
        self._weights = torch.full((count, SIDE, SIDE), 1e-3, dtype=dtype, device=device)
        self._rows = torch.ones((ROWS, SIDE), dtype=dtype, device=device)
        for _ in range(3):
            self.run()

    def run(self) -> float:
        """Run it once; returns wall-clock seconds."""
        if self._cuda:
            torch.cuda.synchronize()
        begun = time.perf_counter()
        with torch.inference_mode():
            for weight in self._weights:
                torch.mm(self._rows, weight)
        if self._cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - begun


CANARY_EVERY_S = 0.5
"""[chosen] a few ms in half a second are below one per cent, and five marks fall into a window of 2 s of drift."""


class Rhythm:
    """The schedule of canaries: the next is due with the first step after `CANARY_EVERY_S` of the last one's
    beginning."""

    _next_s = 0.0

    def due(self, now: float) -> bool:
        if now < self._next_s:
            return False
        self._next_s = now + CANARY_EVERY_S
        return True


class WatchedDevice:
    """A `Device` (`engines.core.device`) that keeps the steps of `device`. Times in s on the loop's clock.

    `steps`: (begin, end, rows) of each step with rows, from hand-over to the return of the tokens. `canaries`: (begin,
    end, seconds of the kernel itself).
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
        self.device.interrupt(request_ids)


Seconds = Callable[[Sequence[Row], float], float]
"""(rows, begin in s) -> seconds of the step."""


class ChargedDevice:
    """A virtual `Device` with given step times: logged ones, a fitted model's, or both.

    It sleeps for `seconds(rows, now)` and makes up tokens below `vocab`.

    A step is charged from the end of the one before it, as the loop's own work between two steps takes no virtual time.
    `canary_s(now)`: the seconds of a canary that is due now; None without canaries.
    """

    modelled = True

    def __init__(self, vocab: int, seconds: Seconds, canary_s: Callable[[float], float] | None = None) -> None:
        self._vocab = vocab
        self._seconds = seconds
        self._canary_s = canary_s
        self._rhythm = Rhythm()
        self._loop = asyncio.get_running_loop()

    async def execute(
        self, scheduled: Any, rows: Sequence[Row], requests: Mapping[str, StageRequest]
    ) -> list[list[int] | None]:
        if not rows:
            return []
        now = self._loop.time()
        seconds = self._seconds(rows, now)
        if self._canary_s is not None and self._rhythm.due(now):
            seconds += self._canary_s(now)
        await asyncio.sleep(seconds)
        vocab = self._vocab
        return [[requests[row.request_id].fake_token_id(vocab)] if row.samples else [] for row in rows]

    def interrupt(self, request_ids: frozenset[str]) -> None:
        """Do nothing: steps take their whole time, and a barge-in takes effect at their end."""
