"""Each routing rule by itself; the contract of all of them is in `test_router_contract`."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vllm.v1.core.kv_cache_utils import KVCacheBlock, get_block_hash, maybe_convert_block_hash

from engines.core.replica import Replica
from engines.core.router import Router
from engines.core.stage import ENTRY
from engines.registry import ROUTINGS
from tests.engines.replays import cut_short, replay, run, voice_trace
from tests.engines.stage import add, make_scheduler, make_stage, step

pytestmark = pytest.mark.slow("replays on several replicas")


def replicas(count: int = 3) -> list[Replica]:
    """With prefix caches of their own, and nothing that would run their steps."""
    stage = make_stage(prefix_caching=True)
    schedulers = (make_scheduler(prefix_caching=True) for _ in range(count))
    return [Replica(stage, index, scheduler, None) for index, scheduler in enumerate(schedulers)]  # type: ignore[arg-type]


def read(replica: Replica, tokens: int) -> None:
    """Compute a prompt of tokens 0, 1, ... at the replica, so that it is in its prefix cache."""
    add(replica.scheduler, f"read.{tokens}", prompt=tokens, output=1, hashed=True)
    step(replica.scheduler)
    assert not replica.scheduler.requests


def made(rule: str, of: list[Replica]) -> Any:
    return ROUTINGS[rule].given({}).router(of)


def routes(router: Router, *sessions: int, prompt: list[int] | None = None) -> list[int]:
    return [router.route(session, prompt or []) for session in sessions]


def test_round_robin_takes_replicas_in_turn():
    router = made("round_robin", replicas(3))
    assert routes(router, 5, 5, 5, 1, 5, 2, 1) == [0, 1, 2, 0, 1, 2, 0]
    router.done(0)
    assert routes(router, 5) == [1], "who is done does not matter"


FOUR = replicas(4)


@given(st.lists(st.none() | st.integers(0, 3), max_size=80))
def test_least_load_takes_the_first_replica_with_the_fewest_requests(asked: list[int | None]):
    """None: a request comes; a number: one of that replica is over, if there is any."""
    router, under_way = made("least_load", FOUR), [0] * 4
    for replica in asked:
        if replica is None:
            taken = router.route(0, [])
            assert taken == under_way.index(min(under_way))
            under_way[taken] += 1
        elif under_way[replica]:
            router.done(replica)
            under_way[replica] -= 1


def test_prefix_match_prefers_the_replica_with_the_longest_cached_prefix():
    three = replicas(3)
    read(three[1], 64)
    read(three[2], 160)
    router = made("prefix_match", three)
    prompt = list(range(200))
    assert routes(router, 0, 1, 2, 3, prompt=prompt) == [2, 2, 2, 2], "however many are there"
    assert router.route(4, prompt[:64]) == 1, "of equals the one with less to do"
    assert router.route(5, prompt[:15]) == 0, "less than a block is in no cache"
    assert router.route(6, [7, *prompt]) == 0, "what matters begins at the beginning"


def test_the_prefix_index_equals_the_replica_s_cache():
    """Through evictions, interruptions and truncations."""
    trace = cut_short(voice_trace(sessions=12, turns=4.0, rate=4.0), after_s=0.3)
    built = []
    server = {"deployment": "qwen3_omni_8gpu", "kv_pool_blocks": 150}
    replay("liveserve", {"routing": "omniproxy"}, server, {}, trace, 7, arrange=built.append)
    pipeline = built[0].gateway.pipeline
    evicted = 0
    for engine, index in zip(pipeline.engines[ENTRY], pipeline.routers[ENTRY].indexes, strict=True):
        pool = engine.scheduler.kv_cache_manager.block_pool
        for event in pool.take_events():  # of an eviction after the last step
            index.removed(event.block_hashes)
        cached = {
            maybe_convert_block_hash(get_block_hash(key)): 1 if isinstance(blocks, KVCacheBlock) else len(blocks)
            for key, blocks in pool.cached_block_hash_to_block._cache.items()
        }
        assert index._stored == cached
        evicted += engine.scheduler.evictions.counters["evict_blocks"]
    assert evicted, "the pool was large enough for everything"


@pytest.mark.parametrize("rule", ["least_load", "least_work", "prefix_match", "omniproxy"])
def test_load_returns_to_zero_however_requests_end(rule: str):
    """Whether a reply ended, was interrupted, or its session failed."""
    trace = cut_short(voice_trace(sessions=16, turns=3.0, rate=20.0), after_s=0.3)
    built = []
    params = {"routing": rule, "talker_routing": "least_load"}
    server = {"deployment": "qwen3_omni_8gpu"}
    result = replay("vllm_omni", params, server, {"turn_timeout_s": 0.2}, trace, 7, arrange=built.append)
    kinds = set(result.events.to_pandas()["kind"].astype(str))
    assert {"abort", "finish", "turn_failed", "turn_done"} <= kinds
    assert [router.load for router in built[0].gateway.pipeline.routers.values()] == [[0] * 4] * 2
    assert result.proof["kv_blocks_used_after"] == result.proof["requests_after"] == 0


def test_least_work_counts_prompts_and_not_requests():
    router = made("least_work", replicas(3))
    assert [router.route(0, [1] * tokens) for tokens in (500, 100, 100, 100, 350, 100)] == [0, 1, 2, 1, 2, 1]
    router.done(0, 500)
    assert router.route(0, [1]) == 0
    full = made("least_work", replicas(2))
    assert [full.route(0, [1]) for _ in range(34)].count(0) == 17, "beyond 16 requests each"


@pytest.mark.parametrize("rule", ["dynamo", "omniproxy", "omniproxy_oss"])
def test_a_prefix_is_known_by_events_and_expected_where_it_was_sent(rule: str):
    three = replicas(3)
    router = made(rule, three)
    read(three[2], 640)
    assert routes(router, 0, prompt=list(range(160))) == [2], "by its events"
    router.done(2, 160)
    first = router.route(1, [7] * 64)
    router.done(first, 64)
    assert routes(router, 2, prompt=[7] * 64) == [first], "though nothing there has begun"


def test_kv_events_change_no_byte_of_a_run():
    """On one replica all routes are the same, and so is the run, whichever router gets its KV events."""
    trace, one_replica = voice_trace(sessions=1, turns=3.0, p=0.0), {"deployment": "qwen3_omni_2gpu"}
    plain, listening = (
        run(trace, "vllm_omni", server=one_replica, routing=rule) for rule in ("session_affinity", "omniproxy")
    )
    assert plain.steps.equals(listening.steps)
