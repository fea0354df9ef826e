"""KV offload to host memory: vLLM's connector, with the transfers on modelled copy engines."""

from types import SimpleNamespace

import pytest

from engines.core.device import Row
from engines.core.host_kv import HostKv
from engines.core.kv_manager import KvStore
from engines.core.request import StageRequest
from engines.systems.liveserve.next_use import NextUseIndex
from harness.events.log import EventLog
from harness.replays.worker.replay import Replay
from tests.engines.host import BLOCKS_PER_S, STEP_S, Bench
from tests.engines.replays import cut_short, run, voice_trace


@pytest.fixture
def bench() -> Bench:
    return Bench()


def evicted(bench: Bench) -> None:
    """Session 1 has 40 blocks of history; session 2 then needs the whole pool of 100."""
    bench.turn("1.0", 1, 640)
    bench.settle()
    bench.turn("2.0", 2, 1584)
    bench.settle()


def test_a_turn_waits_for_its_history_as_long_as_the_copy_takes_and_computes_only_the_rest(bench: Bench):
    evicted(bench)
    assert bench.resident(1) == 0 and bench.missing(1) == 40
    bench.turn("1.1", 1, 656)
    begun_s = bench.now
    assert bench.step() == {} and bench.loads[-1] == ("1.1", 40)
    assert bench.scheduler.loading == {"1.1"}
    assert bench.transfers.next_s == pytest.approx(begun_s + 40 / BLOCKS_PER_S)
    bench.arrive()
    assert bench.step() == {}  # now vLLM learns of it
    assert bench.step() == {"1.1": 16}
    bench.settle()
    assert bench.scheduler.free_blocks == 100


def test_blocks_are_not_overwritten_before_they_are_stored(bench: Bench):
    bench.turn("1.0", 1, 1584, output=1)  # all but one block; its store takes 0.099 s
    bench.step()
    bench.turn("2.0", 2, 1584, output=1)
    stored_s = bench.transfers.next_s
    assert stored_s is not None and bench.waited_s == 0.0
    while "2.0" not in bench.step():
        pass
    assert bench.now - STEP_S == pytest.approx(stored_s)
    bench.settle()
    assert bench.resident(1) + bench.missing(1) == 99


def test_truncation_frees_whole_blocks_past_the_heard_prefix(bench: Bench):
    bench.turn("1.0", 1, 160, output=100)
    bench.settle()
    assert bench.scheduler.cached_blocks == 16  # 160 + 99 tokens
    assert [bench.scheduler.truncate(1, 160 + 50) for _ in range(2)] == [3, 0]
    bench.check()
    assert bench.scheduler.cached_blocks == 13
    assert bench.scheduler.truncate(7, 0) == 0  # never seen
    bench.turn("1.1", 1, 210, output=50)
    bench.step()
    assert bench.scheduler.truncate(1, 0) == 0, "another still holds it"
    bench.check()


PRESSED = {"kv_pool_blocks": 200, "host_kv_gb": 20.0}


@pytest.fixture(scope="module")
def trace():
    return cut_short(voice_trace(sessions=12, rate=2.0, turns=4.0), 1.0)


@pytest.fixture(scope="module")
def offloading(trace):
    return run(trace, "vllm_omni", server=PRESSED)


def prefilled(done: Replay) -> int:
    steps = done.steps.to_pandas()
    return steps.loc[steps["stage"] == "thinker", "prefill_tokens"].sum()


def test_what_was_evicted_is_loaded_with_offload_and_computed_again_without(trace, offloading):
    without = run(trace, "vllm_omni_wo", server=PRESSED)
    assert without.counters["thinker.evict_blocks"] > 0
    assert "thinker.h2d_bytes_foreground" not in without.counters
    assert offloading.counters["thinker.h2d_bytes_foreground"] > 0
    assert prefilled(offloading) < prefilled(without)
    # Under LiveServe, which loads in the background as well, and whose aborts come in the middle of a step
    at_layer = run(trace, "liveserve", server={**PRESSED, "abort_at": "layer"})
    for result in (without, offloading, at_layer):
        assert result.proof["kv_blocks_used_after"] == result.proof["requests_after"] == 0
        assert result.counters["thinker.truncated_blocks"] > 0


def test_a_kv_manager_sees_the_pool_and_the_bandwidth(bench: Bench):
    store = KvStore(bench.scheduler, bench.transfers)
    store.evict_by(NextUseIndex(), "on")
    assert store.bandwidth == BLOCKS_PER_S * store.block_bytes
    assert (store.allocatable_blocks, store.empty_blocks) == (100, 100)
    bench.turn("1.0", 1, 160)
    bench.settle()
    assert (store.allocatable_blocks, store.empty_blocks) == (100, 90)


def test_a_wait_ends_with_its_own_load_or_when_another_load_brought_its_blocks():
    """The first loads four blocks, which the second finds; the third has not waited."""
    requests = {each.id: each for each in (StageRequest("thinker", i, 0, [], 1) for i in (1, 2, 3))}
    first, second, third = requests
    scheduler = SimpleNamespace(deferred=[first, second], preloads=SimpleNamespace(receive=lambda _: None, landed=[]))
    transfers = SimpleNamespace(begin=lambda *_: (1.0, {first: 4}), arrived_s={first: 1.5})
    replica = SimpleNamespace(stage=SimpleNamespace(name="thinker"), scheduler=scheduler, transfers=transfers)
    log = EventLog()
    kv = HostKv(replica, log, None)  # type: ignore[arg-type]
    for now in (1.0, 1.1):  # a wait begins once
        kv.begin(None, requests, now)
    kv.take_arrived(True, requests, 1.6)
    for at_s, name in ((1.7, first), (1.8, second), (1.9, third)):
        kv.started(Row(name, 1, 0, True), requests[name], at_s)
    rows = log.events().to_pandas()[["t", "kind", "session", "value"]].fillna(-1).to_numpy().tolist()
    assert rows[:2] == [[1, "load_start", 1, -1], [1, "load_start", 2, -1]]
    assert rows[2:] == [[1.5, "load_end", 1, 4], [1.8, "load_end", 2, 0]]


def test_charge_eviction_adds_eviction_time_to_the_run(trace, offloading):
    free, charged = offloading, run(trace, "vllm_omni", server={**PRESSED, "charge_eviction": True})
    assert not free.cost["eviction"]["charged"] and charged.cost["eviction"]["charged"]
    assert free.cost["eviction"]["calls"] > 0 and free.cost["eviction"]["mean_ms"] > 0
    assert charged.run_end_s != free.run_end_s
