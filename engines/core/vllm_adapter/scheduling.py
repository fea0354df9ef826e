"""vLLM's scheduler with a policy's plan applied *around* ``super().schedule()``, which is never copied.

Running requests are reordered or set aside for one call (they keep their blocks), the waiting queues are reordered,
budgets are narrowed, and everything is put back. Without a plan it is stock vLLM.
"""

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import vllm.v1.core.sched.scheduler as scheduler_module
import vllm.v1.engine as engine_module
import vllm.v1.request as request_module
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from engines.core.policy import Plan

CLOCK_READERS = (scheduler_module, request_module, engine_module)
"""Modules of vLLM's scheduling path that read ``time``; in a replay they read the run's clock instead."""


@dataclass(slots=True)
class Row:
    """One request's share of a step: ``tokens`` new ones on top of ``context``; ``samples`` = a token comes out."""

    request_id: str
    tokens: int
    context: int
    samples: bool


def use_clock(now: Callable[[], float]) -> None:
    """Let vLLM's scheduling path read the run's clock (s) instead of the wall clock, log-only timestamps included."""
    clock = types.ModuleType("time")
    for name in ("time", "monotonic", "perf_counter"):
        setattr(clock, name, now)
    for name in ("time_ns", "monotonic_ns", "perf_counter_ns"):
        setattr(clock, name, lambda: int(now() * 1e9))
    for module in CLOCK_READERS:
        module.time = clock  # type: ignore[attr-defined]


@cache
def _block_hasher(block_size: int) -> Callable[[Request], Any]:
    hash_fn = get_hash_fn_by_name("sha256")
    init_none_hash(hash_fn)
    return get_request_block_hasher(block_size, hash_fn)


def make_request(
    request_id: str,
    prompt: list[int],
    max_tokens: int,
    arrival_s: float,
    hash_blocks: int | None = None,
    session: int = 0,
    features: Sequence[Any] = (),
) -> Request:
    """A request that produces exactly ``max_tokens`` tokens, greedily.

    ``hash_blocks``: tokens per block with which its blocks enter the prefix cache; None: they do not. ``features``: the
    sound in the prompt (``hearing.Heard.at``).
    """
    return Request(
        request_id,
        prompt,
        SamplingParams(max_tokens=max_tokens, ignore_eos=True, detokenize=False, temperature=0.0),
        None,
        arrival_time=arrival_s,
        mm_features=list(features) or None,
        session_id=str(session),
        block_hasher=None if hash_blocks is None else _block_hasher(hash_blocks),
    )


class StageScheduler(Scheduler):
    """vLLM's scheduler with a policy's plan applied around each call. Without plans it is stock vLLM."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._caps: dict[str, int] = {}
        self._last_owner: dict[int, tuple[int, int]] = {}

    def schedule_with(self, plan: Plan, throttle_prefills: bool = False) -> SchedulerOutput:
        """One round under ``plan``. What is held keeps its place, its status and its blocks."""
        before = self.running
        held = [request for request in before if request.request_id in plan.held]
        if plan.order:
            rank = {request_id: i for i, request_id in enumerate(plan.order)}
            last = len(rank)
            self.running = sorted(
                (r for r in before if r.request_id not in plan.held),
                key=lambda r: rank.get(r.request_id, last),
            )
            for queue in (self.kv_holding_waiting, self.waiting):
                if len(queue) > 1:
                    ordered = sorted(queue, key=lambda r: rank.get(r.request_id, last))
                    queue.remove_requests(ordered)
                    for request in ordered:
                        queue.add_request(request)
        elif held:
            self.running = [request for request in before if request.request_id not in plan.held]
        held_back = self._hold_waiting(plan.held) if len(plan.held) > len(held) else []
        budget, seats = self.max_num_scheduled_tokens, self.max_num_active_reqs
        if plan.step_budget is not None:
            self.max_num_scheduled_tokens = max(1, min(budget, plan.step_budget))
        self.max_num_active_reqs = seats - len(held)  # a held request still has its seat in the model runner
        self._caps = dict(plan.caps)
        if plan.eviction_keys:
            self._order_eviction(plan.eviction_keys)
        try:
            output = super().schedule(throttle_prefills)
        finally:
            self.max_num_scheduled_tokens, self.max_num_active_reqs = budget, seats
            self._caps = {}
            if self.running is not before:
                kept = {request.request_id for request in self.running} | plan.held
                known = {request.request_id for request in before}
                self.running = [r for r in before if r.request_id in kept] + [
                    r for r in self.running if r.request_id not in known
                ]
            for request in held_back:
                self.waiting.add_request(request)
        return output

    def _hold_waiting(self, held: frozenset[str]) -> list[Request]:
        """Take held requests out of the waiting queue for one call; they hold nothing, so nothing else can change."""
        out = [request for request in self.waiting if request.request_id in held]
        self.waiting.remove_requests(out)
        return out

    def session_number(self, request: Request) -> int:
        """The session that a request belongs to, as ``Plan.eviction_keys`` names it."""
        return int(request.session_id or 0)

    def _free_request_blocks(self, request: Request) -> Any:
        session = self.session_number(request)
        for position, block in enumerate(self._blocks(request.request_id)):
            self._last_owner[block.block_id] = (session, position)
        return super()._free_request_blocks(request)

    def _order_eviction(self, keys: Mapping[int, float]) -> None:
        """Let the pool give out empty blocks first, then cached ones by key, largest first and a session's last block
        before its first, then those of sessions without a key, least recently used first as in stock vLLM."""
        queue = self.kv_cache_manager.block_pool.free_block_queue
        empty, keyed, rank = [], [], {}
        for block in queue.get_all_free_blocks():
            session, position = self._last_owner.get(block.block_id, (-1, 0))
            if block.block_hash is None:
                empty.append(block)
            elif session in keys:
                keyed.append(block)
                rank[block.block_id] = (-keys[session], -position)
        keyed.sort(key=lambda block: rank[block.block_id])
        for block in (*empty, *keyed):
            queue.remove(block)
        queue.prepend_n([*empty, *keyed])

    def _reserve_prefill_lookahead(
        self, request: Request, num_computed_tokens: int, num_new_tokens: int
    ) -> int:
        num_new_tokens = super()._reserve_prefill_lookahead(request, num_computed_tokens, num_new_tokens)
        return (
            min(num_new_tokens, self._caps.get(request.request_id, num_new_tokens))
            if self._caps
            else num_new_tokens
        )

    def blocks_held(self, request_id: str) -> int:
        """KV blocks a request holds now."""
        return len(self._blocks(request_id))

    def _blocks(self, request_id: str) -> Sequence[Any]:
        return self.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks.get(request_id, ())

    @property
    def free_blocks(self) -> int:
        """KV blocks that can be given out now, idle cached ones included."""
        return self.kv_cache_manager.block_pool.get_num_free_blocks()

    @property
    def allocatable_blocks(self) -> int:
        """KV blocks of the pool that can ever be given out (the null block cannot)."""
        return self.kv_cache_manager.block_pool.num_gpu_blocks - 1

    @property
    def cached_blocks(self) -> int:
        """Blocks whose content is in the prefix cache."""
        return len(self.kv_cache_manager.block_pool.cached_block_hash_to_block)

    def waiting_requests(self) -> list[Request]:
        """Waiting requests in the order in which stock vLLM would look at them."""
        return [*self.kv_holding_waiting, *self.waiting]

    def withdraw(self, output: SchedulerOutput, request_ids: Iterable[str]) -> None:
        """Undo this step for requests that an interruption dropped from it, before anything else is done to them.

        They keep their blocks and are scheduled again. What ``schedule`` has entered into the prefix cache for them was
        never computed and is taken out: another request would hit it.
        """
        for request_id in request_ids:
            request = self.requests[request_id]
            request.num_computed_tokens -= output.num_scheduled_tokens[request_id]
            if request.num_computed_tokens < request.num_prompt_tokens:
                self._inflight_prefills.add(request)
            for manager in self.kv_cache_manager.coordinator.single_type_managers:
                cached = manager.num_cached_block.get(request_id)
                if cached is None:
                    continue
                valid = min(cached, request.num_computed_tokens // manager.block_size)
                for block in manager.req_to_blocks[request_id][valid:cached]:
                    self.kv_cache_manager.block_pool._maybe_evict_cached_block(block)
                manager.num_cached_block[request_id] = valid

    def abort(self, request_ids: Iterable[str]) -> None:
        """Finish requests as aborted: their blocks return to the pool at once."""
        self.finish_requests(request_ids, RequestStatus.FINISHED_ABORTED)


def rows_of(scheduler: Scheduler, output: SchedulerOutput) -> list[Row]:
    """What a scheduled step consists of. To be called right after ``schedule``, which has advanced the counters."""
    requests, rows = scheduler.requests, []
    for request_id, tokens in output.num_scheduled_tokens.items():
        request = requests[request_id]
        computed = request.num_computed_tokens
        rows.append(Row(request_id, tokens, computed - tokens, computed >= request.num_tokens))
    return rows


def dropped(rows: Sequence[Row], sampled: Sequence[list[int] | None]) -> list[str]:
    """Requests that an interruption took out of the step."""
    return [row.request_id for row, ids in zip(rows, sampled, strict=True) if ids is None]


def finish_step(
    scheduler: Scheduler, output: SchedulerOutput, rows: Sequence[Row], sampled: Sequence[list[int] | None]
) -> list[tuple[str, list[int], bool]]:
    """Give the step's sampled tokens to the scheduler; return (request id, new token ids, finished) of those.

    ``sampled`` has one list per row, empty where the row does not sample yet, None where the device dropped it.
    """
    index = {row.request_id: i for i, row in enumerate(rows)}
    result = ModelRunnerOutput(
        req_ids=list(index), req_id_to_index=index, sampled_token_ids=[ids or [] for ids in sampled]
    )
    return [
        (out.request_id, out.new_token_ids, out.finish_reason is not None)
        for outputs in scheduler.update_from_output(output, result).values()
        for out in outputs.outputs
    ]
