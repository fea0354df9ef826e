"""The one-step path: requests that end with their first step and keep no KV bypass vLLM's scheduler altogether."""

from collections.abc import Sequence
from typing import Any

from engines.core.device import Row
from engines.core.engine import StageEngine
from engines.core.fast_path.decode_batch import BatchTokens, Produced
from engines.core.output import StageOutput
from engines.core.policy import DEFAULT_PLAN, Plan
from engines.core.replica import Replica
from engines.core.request import StageRequest
from engines.core.requests import RequestTable
from engines.core.vllm_adapter.scheduler_path import STARTED, Sampled, SchedulerPath


class OneStepPath(SchedulerPath):
    """Implements `SchedulerPath` for stages such as a vocoder, whose requests are chunks.

    vLLM would run waiting requests first come, first served, one per slot. So does this path while the token budget and
    the KV pool have room for them. Otherwise, and when a plan holds requests, vLLM gets all of them, and every further
    request until it has none.
    """

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica.scheduler)
        self._waiting: dict[str, StageRequest] = {}
        self._running: set[str] = set()
        self._table: RequestTable | None = None

    @staticmethod
    def serves(replica: Replica) -> bool:
        """Return True if the replica keeps no KV, so that its requests can use this path."""
        stage = replica.stage
        plain = stage.order == "fcfs" and stage.role is None and not stage.prefix_caching
        return stage.modelled and plain and not replica.scheduler.offloads

    @property
    def queued(self) -> int:
        return len(self._waiting)

    def attach(self, engine: StageEngine, in_lockstep: bool = False) -> None:
        output = engine.output
        parks = not isinstance(output, StageOutput) or output.ready is not None
        if not parks and not in_lockstep and engine.policy is None and engine.on_arrival is None:
            self._table = engine.table

    def add(self, request: StageRequest) -> bool:
        if self._table is None or request.max_tokens != 1 or self.scheduler.requests:
            self._give_to_vllm()
            return False
        self._waiting[request.id] = request
        return True

    def abort(self, request_id: str) -> bool:
        if request_id in self._running:
            self._running.remove(request_id)
            return True
        return self._waiting.pop(request_id, None) is not None

    def schedule(self, plan: Plan) -> tuple[Any, list[Row]]:
        if self._waiting:
            scheduler = self.scheduler
            requests = [*self._waiting.values()][: scheduler.max_num_active_reqs]
            prompts = [len(request.prompt) for request in requests]
            blocks = sum([-(-tokens // scheduler.block_size) for tokens in prompts])
            fit = sum(prompts) <= scheduler.max_num_scheduled_tokens and blocks <= scheduler.allocatable_blocks
            if fit and plan is DEFAULT_PLAN:
                for request in requests:
                    del self._waiting[request.id]
                    self._running.add(request.id)
                return STARTED, [Row(request.id, len(request.prompt), 0, True) for request in requests]
            self._give_to_vllm()
        return super().schedule(plan)

    def update(
        self, scheduled: Any, rows: list[Row], sampled: Sampled, transfers: Any
    ) -> Sequence[Produced | BatchTokens]:
        if scheduled is not STARTED:
            return super().update(scheduled, rows, sampled, transfers)
        running, self._running = self._running, set()  # without requests aborted in the meantime
        produced: list[Produced] = []
        for row, ids in zip(rows, sampled, strict=True):
            if row.request_id in running:
                assert ids is not None, "only `on_arrival` drops rows"
                produced.append((row.request_id, ids, True))
        return produced

    def _give_to_vllm(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for request in waiting.values():
            assert self._table is not None
            self._table.add_to_vllm(request)
