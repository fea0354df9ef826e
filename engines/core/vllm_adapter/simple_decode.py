"""Simple decodes: rows that write one more token into a KV block which their request holds.

For such a row vLLM's scheduler would only count up. This module finds simple rows, does for them the work of vLLM's
`schedule` and `update_from_output`, and gives a request back to vLLM. It holds all that `engines.core.fast_path` needs
of vLLM's own names.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.single_type_kv_cache_manager import SlidingWindowManager
from vllm.v1.request import Request, RequestStatus

from engines.core.device import Row
from engines.core.policy import Plan
from engines.core.vllm_adapter.bounded import SinkWindowManager
from engines.core.vllm_adapter.scheduling import StageScheduler

SLOTS = 8
"""[chosen] with more free slots, `could_be_hit` does not look which waiting requests would take them."""

LOOKED_AT = (RequestStatus.WAITING, RequestStatus.PREEMPTED)
"""States of a waiting request that vLLM takes in when there is a slot. Until then it takes in no request behind it."""


@dataclass(slots=True)
class SimpleDecode:
    """A request whose rows bypass vLLM's scheduler up to the row on a context of `until` tokens.

    `row`: its next row; of a summed decode its row in step `summed_from`. `blocks`: KV blocks that it holds.
    `unsynced`: sampled tokens that vLLM's request does not have yet. `batched`: it is in the decode batch. `lasts`: the
    context up to which the request holds blocks and does not end. It is beyond `until` where the row at `until` fills a
    block that other requests may hit. In the decode batch that row stays summed unless another request could hit the
    block: it is the row of step `fills_at`, and vLLM learns of the full block later.
    """

    request: Request
    row: Row
    until: int
    lasts: int
    blocks: int
    unsynced: list[int] = field(default_factory=list)
    summed_from: int = 0
    batched: bool = False
    fills_at: int | None = None


class StoresOnly(SchedulerOutput):
    """Replaces vLLM's output for a step in which only its offload connector was asked: the blocks of the step that it
    stores. It lists no rows."""


class SimpleDecodes:
    """Finds the simple decodes of a scheduler and keeps vLLM's state of them.

    `groups`: groups of layers; each takes blocks of its own.
    """

    def __init__(self, scheduler: StageScheduler) -> None:
        self.scheduler = scheduler
        managers = scheduler.kv_cache_manager.coordinator.single_type_managers
        self.groups = len(managers)
        self._manager = managers[0]
        self._windows = [manager for manager in managers if isinstance(manager, SlidingWindowManager)]
        # A window takes blocks back, too; otherwise `cache_blocks` is all that a row needs which only fills its block.
        self._only_caches = self.groups == 1 and not self._windows

    def find(self, request: Request) -> SimpleDecode | None:
        """Return the request as a simple decode; None if its next row is something else."""
        context, params = request.num_computed_tokens, request.sampling_params
        if request.num_tokens - context != 1 or request.has_encoder_inputs:
            return None
        if params is None or params.stop_token_ids or self.at_last_token(request):
            return None
        return self._decode(request)

    def last_context(self, request: Request) -> int:
        """Return the context on which the request samples its last token."""
        remaining = request.max_tokens - request.num_output_tokens
        return min(request.num_computed_tokens + remaining - 1, self.scheduler.max_model_len - 2)

    def through_full_block(self, request: Request) -> SimpleDecode:
        """Give the request the block that its next row needs, or let vLLM know of the block which that row fills.
        Returns the decode from that row on."""
        scheduler, context = self.scheduler, request.num_computed_tokens
        if self._only_caches and context % scheduler.block_size:  # it fills its block and needs none
            scheduler.kv_cache_manager.cache_blocks(request, context + 1)
            decode = self._decode(request)
            decode.until = decode.lasts
            return decode
        if self._only_caches:
            self._take_block(request)
        else:
            scheduler.kv_cache_manager.allocate_slots(request, 1)
        return self._decode(request)

    def _take_block(self, request: Request) -> list[Any]:
        """Give the request the block that its next row needs, as `allocate_slots` does; there must be room. Returns it
        in a list, which is empty if the row only fills a block."""
        row_end, size = request.num_computed_tokens + 1, self.scheduler.block_size
        blocks = self._manager.allocate_new_blocks(request.request_id, row_end, row_end)
        if request._block_hasher is not None:
            cached = self._manager.num_cached_block.get(request.request_id, 0)
            if cached < row_end // size:
                self.scheduler.kv_cache_manager.cache_blocks(request, row_end)
        return blocks

    @property
    def may_store(self) -> bool:
        return self._only_caches and self.scheduler.offloads

    def store(self, requests: Sequence[Request]) -> tuple[StoresOnly, list[SimpleDecode]]:
        """Let the offload connector know of the blocks that the next rows of these decodes fill or need, as vLLM's
        `schedule` does. There must be room for the rows, and vLLM must have nothing else to look at. Returns the
        connector's stores, and the decodes from these rows on."""
        connector = self.scheduler.connector
        assert connector is not None
        decodes, new_blocks = [], []
        for request in requests:
            blocks = self._take_block(request)
            new_blocks.append(([block.block_id for block in blocks],) if blocks else None)
            decode = self._decode(request)
            if decode.until == decode.row.context:  # its row fills a block
                decode.until = decode.lasts = decode.until + 1
            decodes.append(decode)
        step, ids = SchedulerOutput.make_empty(), [request.request_id for request in requests]
        step.num_scheduled_tokens = dict.fromkeys(ids, 1)
        cached = step.scheduled_cached_reqs
        cached.req_ids, cached.new_block_ids = ids, new_blocks
        cached.num_computed_tokens = [decode.row.context for decode in decodes]
        cached.num_output_tokens = [request.num_output_tokens for request in requests]
        stores: Any = StoresOnly.make_empty()
        stores.kv_connector_metadata = connector.build_connector_meta(step)
        return stores, decodes

    def sync(self, decode: SimpleDecode) -> None:
        """Give vLLM's request the tokens that were sampled."""
        if decode.unsynced:
            decode.request.append_output_token_ids(decode.unsynced)
            decode.request.num_computed_tokens += len(decode.unsynced)
            decode.unsynced = []

    def cache_full_block(self, decode: SimpleDecode) -> None:
        """Let vLLM know of the block that the decode's next row, or an earlier one, fills."""
        size = self.scheduler.block_size
        full = (decode.request.num_computed_tokens + 1) // size * size
        self.scheduler.kv_cache_manager.cache_blocks(decode.request, full)

    def give_back(self, decode: SimpleDecode) -> None:
        """Let vLLM schedule the request from now on."""
        # Else it copies all of its tokens.
        self.scheduler.prev_step_scheduled_req_ids.add(decode.row.request_id)
        self.sync(decode)

    def could_be_hit(self, decode: SimpleDecode) -> bool:
        """Return True if a request that vLLM takes in now could begin with the block that the decode's row fills."""
        scheduler, block_hashes = self.scheduler, decode.request.block_hashes
        block = decode.until // scheduler.block_size
        slots = scheduler.max_num_active_reqs - len(scheduler.running) - scheduler.num_waiting_for_streaming_input
        if not block or scheduler.kv_holding_waiting or slots > SLOTS:
            return True
        for request in islice(scheduler.waiting, max(0, slots)):
            hashes = request.block_hashes
            if request.status not in LOOKED_AT or (
                len(hashes) > block and hashes[block - 1] == block_hashes[block - 1]
            ):
                return True
        return False

    def needs(self, requests: Sequence[Request], plan: Plan, left: int, last: Any) -> tuple[int, int]:
        """Return the tokens of the next rows of these running requests under `plan`, and the new blocks that each group
        of layers needs. `last`: the last of all running requests; it takes what the others leave of `left` tokens."""
        size, tokens, blocks = self.scheduler.block_size, 0, 0
        for request in sorted(requests, key=lambda request: request is last):
            computed, request_id = request.num_computed_tokens, request.request_id
            own = min(request.num_tokens - computed, plan.caps.get(request_id, request.num_tokens))
            if request is last:
                own = max(0, min(own, left - tokens))
            tokens += own
            blocks += max(0, -(-(computed + own) // size) - self.scheduler.blocks_held(request_id))
        return tokens, blocks

    def at_last_token(self, request: Request) -> bool:
        """Return True if the request's next row samples its last token."""
        return self.last_context(request) <= request.num_computed_tokens

    def token_budget(self, plan: Plan) -> int:
        budget = self.scheduler.max_num_scheduled_tokens
        return budget if plan.step_budget is None else min(budget, plan.step_budget)

    def _decode(self, request: Request) -> SimpleDecode:
        """Return the decode of a request whose next row samples and has a block to write to."""
        context, size = request.num_computed_tokens, self.scheduler.block_size
        blocks = self.scheduler.blocks_held(request.request_id)
        until = lasts = min(self.last_context(request), blocks * size)
        if request._block_hasher is not None:
            until = min(until, context // size * size + size - 1)
            if not self._may_cache_later:
                lasts = until
        for manager in self._windows:
            until = lasts = min(until, _taken_back(manager, request.request_id, context))
        return SimpleDecode(request, Row(request.request_id, 1, context, True), until, lasts, blocks)

    @property
    def _may_cache_later(self) -> bool:
        """Return True if vLLM can learn of a full block later: nobody reads its events, and one call does it."""
        scheduler = self.scheduler
        events = scheduler.kv_cache_manager.block_pool.enable_kv_cache_events
        return self.groups == 1 and not scheduler.offloads and not events


def _taken_back(manager: SlidingWindowManager, request_id: str, context: int) -> int:
    """Return the first context, from this one on, on which vLLM takes back a block that the window has left."""
    size = manager.block_size
    pinned = manager.sink_blocks if isinstance(manager, SinkWindowManager) else 0
    skipped = manager.get_num_skipped_tokens(context) // size
    if skipped > pinned and not manager.req_to_blocks[request_id][skipped - 1].is_null:
        return context
    return manager.sliding_window - 1 + (max(skipped, pinned) + 1) * size
