"""Real devices: vLLM's own worker and model run the step, in a thread, while clients and gateway go on.

Stages on the same device share one thread and so take turns in the order of their steps, like the compute queue of a
modelled GPU. (Two forward passes at once in a process would also share vLLM's forward context, which is global.)
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any

from engines.core.device import Row
from engines.core.request import StageRequest
from engines.core.vllm_adapter.execution import ModelExecutor, in_order


class DeviceThread:
    """Runs calls one after the other, first in, first out.

    Nothing but a queue and the loop's wake-up stands between a step and the next: an executor of the standard library
    adds about 0.05 ms to each, which is one per cent of a small model's step.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Callable[..., Any], Any, asyncio.Future[Any]] | None] = SimpleQueue()
        self._thread = Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., Any], argument: Any) -> asyncio.Future[Any]:
        """Run `function(argument)` in the thread; returns its future result, to be awaited on the caller's loop."""
        future = asyncio.get_running_loop().create_future()
        self._calls.put((function, argument, future))
        return future

    def close(self) -> None:
        """End the thread after its queued calls."""
        self._calls.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            function, argument, future = call
            try:
                settle, outcome = _result, function(argument)
            except Exception as error:
                settle, outcome = _exception, error
            future.get_loop().call_soon_threadsafe(settle, future, outcome)


def _result(future: asyncio.Future[Any], outcome: Any) -> None:
    if not future.cancelled():
        future.set_result(outcome)


def _exception(future: asyncio.Future[Any], outcome: Exception) -> None:
    if not future.cancelled():
        future.set_exception(outcome)


class CopyAtOnce:
    """`engines.core.vllm_adapter.offload.CopyEngine` of a device whose copies are over when they are asked for.

    `bandwidth`: bytes/s, for plans.
    """

    def __init__(self, bandwidth: float) -> None:
        self.bandwidth = bandwidth

    def copy(self, size_bytes: float, not_before: float = 0.0) -> float:
        """Return now, s on the run's clock."""
        return max(not_before, asyncio.get_running_loop().time())

    def queued_s(self) -> float:
        return 0.0


class RealStage:
    """Implements `engines.core.device.Device` for one stage replica on a real device; `thread` is the device's."""

    modelled = False

    def __init__(self, executor: ModelExecutor, thread: DeviceThread) -> None:
        self.executor = executor
        self._thread = thread

    async def execute(
        self, scheduled: Any, rows: Sequence[Row], requests: Mapping[str, StageRequest]
    ) -> list[list[int] | None]:
        self.executor.interruption.begin()
        return in_order(rows, await self._thread.call(self.executor.run, scheduled))

    def interrupt(self, request_ids: frozenset[str]) -> None:
        self.executor.interruption.ask(request_ids)
