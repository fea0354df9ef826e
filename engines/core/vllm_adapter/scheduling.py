"""vLLM's scheduler with a policy's plan applied *around* `super().schedule()`, which is never copied.

Running requests are reordered or set aside for one call (they keep their blocks), the waiting queues are reordered,
budgets are narrowed, and everything is put back. Without a plan it is stock vLLM.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, Protocol

from vllm.config import VllmConfig
from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.single_type_kv_cache_manager import SlidingWindowManager
from vllm.v1.request import Request, RequestStatus, StreamingUpdate

from engines.core.kv_manager import EvictionIndex, EvictionMode
from engines.core.policy import Plan
from engines.core.vllm_adapter.block_pool import use_fast_pool
from engines.core.vllm_adapter.bounded import SinkWindowManager
from engines.core.vllm_adapter.eviction import Evictions, drop_content
from engines.core.vllm_adapter.free_queue import NextUseQueue, install
from engines.core.vllm_adapter.hand_over import use_hand_over
from engines.core.vllm_adapter.history import Histories
from engines.core.vllm_adapter.kv_scheduler import KvScheduler
from engines.core.vllm_adapter.offload import use_host_memory
from engines.core.vllm_adapter.preload import Preloads
from engines.core.vllm_adapter.recovery import Recovery, Refusals


class Bypass(Protocol):
    """Requests whose rows bypass the scheduler, so that vLLM does not have all of their tokens
    (`engines.core.fast_path`). `decodes`: these requests, by id; the `row` of each is its next one."""

    decodes: dict[str, Any]

    def sync_to_vllm(self, request_ids: Iterable[str]) -> None:
        """Give vLLM all tokens and counts of these requests."""

    def sync_tokens(self, request_id: str) -> None:
        """Give vLLM the tokens of this request, which goes on bypassing it."""

    def cache_full_blocks(self) -> None:
        """Let vLLM know of all full blocks. The requests go on bypassing it."""


class StageScheduler(KvScheduler):
    """vLLM's scheduler with a policy's plan applied around each call. Without plans it is stock vLLM.

    `on_chunk(request id, position)`: a chunk has become part of a session's prompt; its first token is at `position`.
    `preempts_waiting`: a full pool takes blocks back from waiting sessions, too (see `recovery`).

    `counters`: failed allocations of waiting and of running requests (`alloc_fail_waiting`, `alloc_fail_running`);
    waiting sessions preempted (`recovered`); blocks behind their session's window, counted when it gives up the others,
    including the first blocks of a prefix hit (`freed_behind_window`); and the most sinks held at once, a shared one
    counted for each session (`pinned_blocks`).
    """

    def __init__(self, vllm_config: VllmConfig, *args: Any, **kwargs: Any) -> None:
        # Not before: a worker built from it would have a half of the connector, too.
        use_host_memory(vllm_config)
        use_hand_over(vllm_config)
        super().__init__(vllm_config, *args, **kwargs)
        self._caps: dict[str, int] = {}
        self._latest: dict[int, Request] = {}
        self.on_chunk: Callable[[str, int], None] | None = None
        self.preempts_waiting = False
        self.histories = Histories(self.block_size)
        self.evictions = Evictions()
        self.preloads = Preloads(self)
        self.next_use: NextUseQueue | None = None
        self.bypass: Bypass | None = None
        self.evictions.watch(self.kv_cache_manager.block_pool.free_block_queue)
        self.counters: Counter[str] = Counter()
        self.refusals = Refusals(self.kv_cache_manager, self.counters)
        self.recovery = Recovery(self, self.refusals)
        manager = self.kv_cache_manager.coordinator.single_type_managers[0]
        self.windowed = isinstance(manager, SlidingWindowManager)
        """True if all layers have a window: otherwise the first group is the layers without one."""
        self._sink_blocks = manager.sink_blocks if isinstance(manager, SinkWindowManager) else 0

    def model(self) -> None:
        """Use short keys and a `FastBlockPool`: no other process knows the KV."""
        self.short_keys = self.histories.short_keys = True
        use_fast_pool(self.kv_cache_manager.block_pool)

    def add_turn(self, session: int, request: Request) -> None:
        """Add a session's request, whose KV `truncate` may then shorten."""
        self._latest[session] = request
        self.add_request(request)

    def add_request(self, request: Request) -> None:
        """Add a request as vLLM does. The first chunk of a session is hashed now; later chunks only extend its
        prompt."""
        opens = request.resumable and request.request_id not in self.requests
        if opens:
            request.update_block_hashes()
        super().add_request(request)
        if opens and self.on_chunk is not None:
            self.on_chunk(request.request_id, 0)

    def _update_request_as_session(self, session: Request, update: StreamingUpdate) -> None:
        preempted = not session.num_computed_tokens
        if preempted:
            # While it waited. vLLM cuts off the last token, which was sampled and not computed, or (0.32) all that is
            # not computed, which here is the whole history.
            if not session.num_output_tokens:
                session._all_token_ids.append(0)
            session.num_computed_tokens = session.num_tokens - 1
        super()._update_request_as_session(session, update)
        if preempted:
            session.num_computed_tokens = 0
        if self.on_chunk is not None and update.prompt_token_ids:
            self.on_chunk(session.request_id, session.num_tokens - len(update.prompt_token_ids))

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        """Schedule one round in vLLM's own order, then the background loads that have yet to begin."""
        offered = self.preloads.offer()
        self.refusals.last = None
        output = super().schedule(throttle_prefills)
        if self.preempts_waiting and not output.num_scheduled_tokens:
            output = self.recovery.retry(output, partial(super().schedule, throttle_prefills))
        if offered:
            self.preloads.set_aside(offered)
        if self._sink_blocks:
            self.counters["pinned_blocks"] = max(self.counters["pinned_blocks"], self._pinned_blocks())
        return output

    def schedule_with(
        self, plan: Plan, throttle_prefills: bool = False, runnable: list[Request] | None = None, bypassing: int = 0
    ) -> SchedulerOutput:
        """Schedule one round under `plan`. A held request keeps its place, its status and its blocks.

        `bypassing`: number of running requests that take a token and a slot each on the decode fast path; `runnable`:
        the other running requests that are not held, in the plan's order.
        """
        before = self.running
        held = [request for request in before if request.request_id in plan.held] if plan.held else []
        self.order_waiting(plan)
        self.running = self.in_order(plan) if runnable is None else runnable
        seen = self.running.copy()
        held_back = self._hold_waiting(plan.held) if len(plan.held) > len(held) else []
        budget, slots = self.max_num_scheduled_tokens, self.max_num_active_reqs
        if plan.step_budget is not None:
            self.max_num_scheduled_tokens = max(1, min(budget, plan.step_budget))
        self.max_num_scheduled_tokens -= bypassing
        # A held request still has its slot in the model runner.
        self.max_num_active_reqs = slots - len(held) - bypassing
        self._caps = dict(plan.caps)
        try:
            output = StageScheduler.schedule(self, throttle_prefills)
        finally:
            self.max_num_scheduled_tokens, self.max_num_active_reqs = budget, slots
            self._caps = {}
            if self.running is not before:
                after, stay = self.running, len(seen)
                if after[:stay] != seen:
                    gone = set(seen).difference(after)
                    before, stay = [r for r in before if r not in gone], stay - len(gone)
                self.running = before + after[stay:]
            for queue, request in held_back:
                queue.add_request(request)
            # vLLM saw them gone, and would take its queue for drained.
            self.prefill_capacity_bound |= bool(held_back)
        return output

    def preempt(self, request_ids: Sequence[str]) -> None:
        """Take back the blocks of these requests, as vLLM does from running ones when its pool is full; they wait
        again.

        A waiting request may hold blocks, too: its KV has come from the host, and it has not run since.
        """
        for request_id in request_ids:
            request = self.requests[request_id]
            if not self._request_blocks_can_be_freed(request):
                continue
            if request.status == RequestStatus.RUNNING:
                self.running.remove(request)
            else:
                self._handle_blocked_waiting_request(request)  # the KV that has come is cached
                self.kv_holding_waiting.remove_request(request)
                request.status = RequestStatus.RUNNING  # vLLM knows no other that can be preempted
            self._preempt_request(request, request.arrival_time)

    def in_order(self, plan: Plan) -> list[Request]:
        """Return the running requests that may run under `plan`, in the order for vLLM."""
        running = self.running
        if plan.held:
            running = [request for request in running if request.request_id not in plan.held]
        if plan.order:
            running = sorted(running, key=_place_in(plan))
        return running

    def order_waiting(self, plan: Plan) -> None:
        """Put the waiting queues into the plan's order. Requests that it does not name keep theirs, at the end."""
        if not plan.order or self.all_run:
            return
        place = _place_in(plan)
        for queue in (self.kv_holding_waiting, self.waiting):
            if len(queue) > 1:
                ordered = sorted(queue, key=place)
                queue.remove_requests(ordered)
                for request in ordered:
                    queue.add_request(request)

    def would_look(self, plan: Plan) -> bool:
        """Return True if vLLM had anything besides running requests to look at in a round."""
        if self.preloads.offered or self.reset_preempted_req_ids or (self.finished_req_ids and self.offloads):
            return True
        if self.all_run:
            return False
        waiting = len(self.waiting) + len(self.kv_holding_waiting)
        if waiting and not self.offloads and not self.preempts_waiting:
            taken = len(self.running) + self.num_waiting_for_streaming_input
            if taken >= self.max_num_active_reqs:
                return False  # it looks at no waiting request while there is no slot
        if waiting and plan.held:
            waiting = sum(request.request_id not in plan.held for request in self.waiting_requests())
        return waiting > 0

    def _hold_waiting(self, held: frozenset[str]) -> list[tuple[Any, Request]]:
        """Take held requests out of the waiting queues for one call, in which nothing can change for them."""
        out = [(q, r) for q in (self.kv_holding_waiting, self.waiting) for r in q if r.request_id in held]
        for queue, request in out:
            queue.remove_request(request)
        return out

    def evict_by(self, index: EvictionIndex, mode: EvictionMode) -> None:
        """Implements `engines.core.kv_manager.KvStore`."""
        self.next_use = install(self.kv_cache_manager.block_pool, index, {}, mode)
        self.evictions.watch(self.next_use)

    def _free_request_blocks(self, request: Request) -> Any:
        if self.next_use is not None:
            owners, session = self.next_use.owners, int(request.session_id or 0)
            for position, block in enumerate(self._blocks(request.request_id)):
                if block.block_hash is not None:
                    owners[block.block_id] = {**owners.get(block.block_id, {}), session: position}
        if self.windowed:
            self.counters["freed_behind_window"] += _behind_window(self._blocks(request.request_id))
        return super()._free_request_blocks(request)

    def _reserve_prefill_lookahead(self, request: Request, num_computed_tokens: int, num_new_tokens: int) -> int:
        if request.request_id in self.preloads.ids:
            return 0  # a background load never computes
        num_new_tokens = super()._reserve_prefill_lookahead(request, num_computed_tokens, num_new_tokens)
        return min(num_new_tokens, self._caps.get(request.request_id, num_new_tokens)) if self._caps else num_new_tokens

    def blocks_held(self, request_id: str) -> int:
        blocks = self._blocks(request_id)
        return len(blocks) - _behind_window(blocks) if self.windowed else len(blocks)

    def computed_prompt(self, request_id: str) -> int:
        """Return the tokens of a request's prompt that have KV now."""
        request = self.requests[request_id]
        return min(request.num_computed_tokens, request.num_prompt_tokens)

    def _pinned_blocks(self) -> int:
        tables = self.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks.values()
        return sum(min(len(blocks), self._sink_blocks) for blocks in tables)

    @property
    def empty_blocks(self) -> int:
        """Return the free blocks without content; known only with an eviction index."""
        assert self.next_use is not None
        return self.next_use.empty_blocks

    @property
    def loading(self) -> frozenset[str]:
        """Return the requests that wait for their KV to come from the host."""
        if self.all_run:
            return frozenset()
        return frozenset(
            request.request_id
            for request in self.kv_holding_waiting
            if request.status == RequestStatus.WAITING_FOR_REMOTE_KVS
            and request.request_id not in self.finished_recving_kv_req_ids
        )

    def waits_with_loaded(self, request: Request) -> bool:
        """Return True if the request's KV has come from elsewhere, and it has not run since."""
        return (
            request.status == RequestStatus.WAITING_FOR_REMOTE_KVS
            and request.request_id in self.finished_recving_kv_req_ids
        )

    @property
    def awaiting_input(self) -> frozenset[str]:
        """Return the sessions that have answered all their chunks and wait for more."""
        return frozenset(
            request.request_id
            for request in self.waiting_requests()
            if request.status == RequestStatus.WAITING_FOR_STREAMING_REQ
        )

    @property
    def deferred(self) -> list[str]:
        """Return the requests that vLLM passed over in the last round, in queue order: they wait for a transfer."""
        deferred = self.deferred_waiting
        return [r.request_id for r in self.waiting_requests() if r in deferred] if deferred else []

    def promised_blocks(self, request_ids: Iterable[str]) -> int:
        """Return the free blocks that vLLM reserves for these loading requests, to compute the rest of their
        prompts."""
        return sum(self._request_remaining_blocks(self.requests[id]) for id in request_ids)

    @property
    def all_run(self) -> bool:
        """Return True if no request waits: a shorter way than to ask vLLM's queues."""
        return len(self.requests) == len(self.running)

    def waiting_requests(self) -> list[Request]:
        return [] if self.all_run else [*self.kv_holding_waiting, *self.waiting]

    def remember(self, session: int, tokens: list[int], features: Sequence[Any] = ()) -> Sequence[Any]:
        """Set the session's history to `tokens`; returns the hashes of its full blocks."""
        return self.histories.set(session, tokens, features).hashes

    def cached_prefix(self, tokens: Sequence[int], features: Sequence[Any] = ()) -> int:
        """Return the tokens at the beginning of a prompt whose KV is in the prefix cache, in whole blocks."""
        hashes: list[Any] = []
        self.histories.extend(hashes, list(tokens), features)
        if self.bypass is not None:
            self.bypass.cache_full_blocks()
        return self.cached_tokens(hashes)

    def cached_tokens(self, hashes: Sequence[Any]) -> int:
        """Return the tokens at the beginning of a prompt with these block hashes that vLLM knows to be in the prefix
        cache."""
        cached = (self.kv_cache_manager.block_pool.get_cached_block(block_hash, [0]) for block_hash in hashes)
        return self.block_size * sum(1 for _ in takewhile(lambda blocks: blocks is not None, cached))

    def event_hashes(self, tokens: Sequence[int], features: Sequence[Any] = ()) -> list[Any]:
        """Return the hashes of a prompt's full blocks, as KV events name them."""
        hashes: list[Any] = []
        self.histories.extend(hashes, list(tokens), features)
        return [maybe_convert_block_hash(block_hash) for block_hash in hashes]

    def forget(self, session: int) -> None:
        self.histories.forget(session)
        self._latest.pop(session, None)

    def truncate(self, session: int, tokens: int) -> int:
        """Drop the KV of the session's latest request beyond its first `tokens` tokens: nobody can ask for it.

        Whole blocks only. Returns the number of blocks that became empty.
        """
        request = self._latest.get(session)
        if request is None:
            return 0
        return drop_content(self.kv_cache_manager.block_pool, request.block_hashes[tokens // self.block_size :])

    def withdraw(self, output: SchedulerOutput | None, request_ids: Sequence[str]) -> frozenset[int]:
        """Undo this step for requests that an interruption dropped from it, before they change in any other way.

        They keep their blocks and are scheduled again. Their new blocks in the prefix cache were never computed and are
        taken out: another request would hit them. Their stores on the host are taken back too; the ids of those jobs
        are returned.
        """
        scheduled = {} if output is None else output.num_scheduled_tokens
        for request_id in request_ids:
            if request_id in scheduled:
                request = self.requests[request_id]
                request.num_computed_tokens -= scheduled[request_id]
                computed = request.num_computed_tokens
                if computed < request.num_prompt_tokens:
                    self._inflight_prefills.add(request)
            else:  # vLLM was not asked about it, but may have given it a block
                assert self.bypass is not None
                computed = self.bypass.decodes[request_id].row.context
            for manager in self.kv_cache_manager.coordinator.single_type_managers:
                cached = manager.num_cached_block.get(request_id)
                if cached is None:
                    continue
                valid = min(cached, computed // manager.block_size)
                for block in manager.req_to_blocks[request_id][valid:cached]:
                    self.kv_cache_manager.block_pool._maybe_evict_cached_block(block)
                manager.num_cached_block[request_id] = valid
        if output is None or not self.offloads:
            return frozenset()
        return self._withdraw_stores(output, frozenset(request_ids))

    def _withdraw_stores(self, output: SchedulerOutput, request_ids: frozenset[str]) -> frozenset[int]:
        meta: Any = output.kv_connector_metadata
        withdrawn = [job_id for job_id, job in meta.store_jobs.items() if job.req_id in request_ids]
        for job_id in withdrawn:
            job = self.offloading._jobs[job_id]
            context = self.offloading._req_status[job.req_id].req_context
            self.offloading.manager.complete_store(job.keys, context, success=False)
            job.keys = set()
        return frozenset(withdrawn)

    def finish_requests(self, request_ids: Any, finished_status: RequestStatus) -> Any:
        if self.bypass is not None:
            ids = self.requests if request_ids is None else request_ids
            self.bypass.sync_to_vllm([ids] if isinstance(ids, str) else list(ids))
        return super().finish_requests(request_ids, finished_status)

    def abort(self, request_ids: Iterable[str]) -> None:
        """Finish requests as aborted: their blocks return to the pool at once."""
        self.finish_requests(request_ids, RequestStatus.FINISHED_ABORTED)


def _behind_window(blocks: Sequence[Any]) -> int:
    return sum(block.is_null for block in blocks)


def _place_in(plan: Plan) -> Callable[[Request], int]:
    """Return the sort key of the plan's order; requests that it does not name are last."""
    places = {request_id: place for place, request_id in enumerate(plan.order)}
    return lambda request: places.get(request.request_id, len(places))
