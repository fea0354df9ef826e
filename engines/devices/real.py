"""Real devices: vLLM's own worker and model run the step, in a thread, while clients and gateway go on.

Stages on the same device share one thread and so take turns in the order of their steps, like the compute queue of a
modelled GPU. (Two forward passes at once in a process would also share vLLM's forward context, which is global.)
"""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from engines.core.device import Row
from engines.core.request import StageRequest
from engines.core.vllm_adapter.execution import ModelExecutor, in_order


class RealStage:
    """One stage replica on a real device; ``thread`` is the device's."""

    def __init__(self, executor: ModelExecutor, thread: ThreadPoolExecutor) -> None:
        self.executor = executor
        self._thread = thread
        self._loop = asyncio.get_running_loop()

    async def execute(
        self, scheduled: Any, rows: Sequence[Row], requests: Mapping[str, StageRequest]
    ) -> list[list[int] | None]:
        """See ``engines.core.device.Device``."""
        self.executor.interruption.begin()
        return in_order(rows, await self._loop.run_in_executor(self._thread, self.executor.run, scheduled))

    def interrupt(self, request_ids: frozenset[str]) -> None:
        """See ``engines.core.device.Device``."""
        self.executor.interruption.ask(request_ids)
