"""The adapter around vLLM's scheduler: KV events, clock, plans, rows, chunks."""

import itertools
import time
from types import SimpleNamespace
from typing import Any

import pytest
import vllm.v1.core.kv_cache_metrics as metrics_module
import vllm.v1.core.sched.scheduler as scheduler_module
import vllm.v1.engine as engine_module
import vllm.v1.request as request_module

from engines.core import vllm_adapter as vllm
from engines.core.policy import Plan
from engines.core.vllm_adapter import StageScheduler, clock
from engines.core.vllm_adapter.eviction import SHORT_CYCLE_S, Evictions
from tests.engines.stage import add, finish, make_scheduler, step
from tests.engines.test_identity import digest


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


def test_vllm_s_own_clock_changes_no_step(monkeypatch: pytest.MonkeyPatch):
    """Why a replay in virtual time need not touch it: the same steps when it runs backwards in leaps."""

    def steps() -> list:
        scheduler, digests = make_scheduler(blocks=14, max_num_batched_tokens=64), []
        for i in range(60):
            if i % 3 == 0:
                add(scheduler, f"r{i}", prompt=20 + 7 * (i % 5), output=12 + i % 9, arrival_s=float(i))
            output = scheduler.schedule()
            digests.append(digest(output))
            finish(scheduler, output)
        return digests

    expected, reads = steps(), itertools.count()
    leaping = SimpleNamespace(**{name: lambda: -1e6 * next(reads) for name in ("time", "monotonic")})
    for module in CLOCK_READERS:
        monkeypatch.setattr(module, "time", leaping)
    assert steps() == expected
    assert any(told["preempted"] for told in expected)
    assert next(reads) > 60  # it was read


def loaded(names: str, prompt: int = 32, **limits: Any) -> StageScheduler:
    """A scheduler with these requests."""
    scheduler = make_scheduler(**limits)
    for name in names:
        add(scheduler, name, prompt=prompt)
    return scheduler


def running(scheduler: StageScheduler) -> str:
    return "".join(request.request_id for request in scheduler.running)


def test_held_running_requests_keep_their_blocks_place_and_status():
    scheduler = loaded("abcd")
    step(scheduler)
    before = {name: scheduler.kv_cache_manager.get_block_ids(name) for name in "bd"}
    for _ in range(3):
        assert step(scheduler, Plan(held=frozenset("bd"))) == {"a", "c"}
    assert {name: scheduler.kv_cache_manager.get_block_ids(name) for name in "bd"} == before
    assert running(scheduler) == "abcd"
    assert step(scheduler) == set("abcd")


def test_order_decides_who_gets_a_scarce_token_budget():
    scheduler = loaded("abcd")
    step(scheduler)
    assert step(scheduler, Plan(order=["d", "b", "a", "c"], step_budget=2)) == {"d", "b"}
    assert scheduler.max_num_scheduled_tokens == 2048
    assert running(scheduler) == "abcd"
    # It reaches the waiting queue, and caps limit one request's tokens
    assert step(loaded("abc", max_num_seqs=1), Plan(order=["c", "a", "b"])) == {"c"}
    assert loaded("a", prompt=500).schedule_with(Plan(caps={"a": 100})).num_scheduled_tokens == {"a": 100}


def test_held_requests_are_not_admitted_and_running_ones_keep_their_slots():
    waiting = loaded("ab")
    assert step(waiting, Plan(held=frozenset("a"))) == {"b"}
    assert step(waiting) == {"a", "b"}
    full = loaded("abc", max_num_seqs=2)
    step(full)
    assert step(full, Plan(held=frozenset("a"))) == {"b"}
    assert full.max_num_active_reqs == 2


@pytest.mark.parametrize(("budget", "left"), [(64, 61), (200, 63)])
def test_bypassing_rows_take_a_token_and_a_slot_each(budget: int, left: int):
    scheduler = loaded("abc", prompt=16, max_num_seqs=4, max_num_batched_tokens=budget)
    step(scheduler)
    for name in "xy":
        add(scheduler, name, prompt=63)
    output = scheduler.schedule_with(Plan(), runnable=[scheduler.requests["c"]], bypassing=2)
    assert output.num_scheduled_tokens == {"c": 1, "x": left}
    assert running(scheduler) == "abcx"
    assert (scheduler.max_num_scheduled_tokens, scheduler.max_num_active_reqs) == (budget, 4)


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
