"""The adapter around vLLM's scheduler: KV events, clock, plans, rows, chunks."""

import time
from typing import Any

import vllm.v1.core.kv_cache_metrics as metrics_module
import vllm.v1.core.sched.scheduler as scheduler_module
import vllm.v1.engine as engine_module
import vllm.v1.request as request_module

from engines.core import vllm_adapter as vllm
from engines.core.policy import Plan
from engines.core.vllm_adapter import StageScheduler, clock
from engines.core.vllm_adapter.eviction import SHORT_CYCLE_S, Evictions
from tests.engines.stage import add, make_scheduler, step


def test_a_prefix_index_follows_stored_and_cleared_blocks():
    scheduler = make_scheduler(prefix_caching=True)
    pool = scheduler.kv_cache_manager.block_pool
    assert pool.enable_kv_cache_events is False
    index = vllm.follow(scheduler)
    add(scheduler, "a", prompt=48, output=1, hashed=True)
    step(scheduler)
    hashes = scheduler.event_hashes(list(range(48)))
    assert index.depth(hashes) == len(hashes) == 3
    assert scheduler.reset_prefix_cache()
    add(scheduler, "b", prompt=16, output=1, hashed=True)
    step(scheduler)
    assert index.depth(hashes) == len(index) == 1, "told at the end of a step, in order: cleared, then stored"


def test_rows_of_a_step_have_tokens_context_and_whether_they_sample():
    scheduler = loaded("ab", max_num_batched_tokens=40)
    rows = vllm.rows_of(scheduler, scheduler.schedule())
    assert [(row.request_id, row.tokens, row.context, row.samples) for row in rows] == [
        ("a", 32, 0, True),
        ("b", 8, 0, False),
    ]


CLOCK_READERS = (scheduler_module, request_module, engine_module, metrics_module)
"""Modules of vLLM's scheduling path that read `time`."""


def test_the_adapter_reads_the_run_s_clock_and_vllm_keeps_its_own():
    restore = vllm.use_clock(lambda: 1234.5)
    try:
        assert clock.now() == 1234.5
        assert all(module.time is time for module in CLOCK_READERS)
        assert vllm.make_request("r", [1], 1, 1234.5).arrival_time == 1234.5
    finally:
        restore()
    assert clock.now() != 1234.5


def test_a_block_s_short_cycle_is_timed_on_the_run_s_clock():
    evictions, at_s = Evictions(), 0.0
    restore = vllm.use_clock(lambda: at_s)
    try:
        evictions.remember([b"soon", b"late", b"again"])
        at_s = SHORT_CYCLE_S - 0.1
        evictions.reloaded([b"soon"])
        evictions.remember([b"again"])
        at_s = SHORT_CYCLE_S
        evictions.reloaded([b"late", b"soon", b"again"])
    finally:
        restore()
    assert evictions.counters["evict_reload_within_5s"] == 2
    assert evictions.counters["evict_blocks"] == 4


def loaded(names: str, prompt: int = 32, **limits: Any) -> StageScheduler:
    """A scheduler with these requests."""
    scheduler = make_scheduler(**limits)
    for name in names:
        add(scheduler, name, prompt=prompt)
    return scheduler


def running(scheduler: StageScheduler) -> str:
    return "".join(request.request_id for request in scheduler.running)


def test_held_requests_are_not_admitted_and_running_ones_keep_their_slots():
    waiting = loaded("ab")
    assert step(waiting, Plan(held=frozenset("a"))) == {"b"}
    assert step(waiting) == {"a", "b"}
    full = loaded("abc", max_num_seqs=2)
    step(full)
    assert step(full, Plan(held=frozenset("a"))) == {"b"}
    assert full.max_num_active_reqs == 2


def test_a_request_preempted_next_to_bypassing_rows_stops_running():
    scheduler = loaded("abc", prompt=31, blocks=7)
    step(scheduler)
    step(scheduler)
    assert not scheduler.free_blocks
    rest = [scheduler.requests[name] for name in "cb"]
    output = scheduler.schedule_with(Plan(order=["a", "c", "b"]), runnable=rest, bypassing=1)
    assert output.num_scheduled_tokens == {"c": 1} and output.preempted_req_ids == {"b"}
    assert running(scheduler) == "ac"


def test_the_next_chunk_of_a_session_replaces_its_last_token():
    scheduler, starts = make_scheduler(), []
    scheduler.on_chunk = lambda request_id, position: starts.append((request_id, position))
    for chunk in (range(40), range(100, 120)):
        scheduler.add_request(vllm.make_chunk("s1", list(chunk), 3, 0.0))
    assert starts == [("s1", 0)]
    finished = []
    for _ in range(6):
        output = scheduler.schedule()
        rows = vllm.rows_of(scheduler, output)
        finished += vllm.finish_step(scheduler, output, rows, [[7] for _ in rows])
    assert finished == [("s1", [7], False)] * 6
    assert starts == [("s1", 0), ("s1", 42)]
    assert list(scheduler.requests["s1"].all_token_ids) == [*range(40), 7, 7, *range(100, 120), 7, 7, 7]
    assert (scheduler.num_waiting_for_streaming_input, len(scheduler.running)) == (1, 0)
    scheduler.abort(["s1"])
    assert scheduler.free_blocks == scheduler.allocatable_blocks
