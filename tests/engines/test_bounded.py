"""Attention window and sinks on vLLM's scheduler: the blocks that a session holds, and the work of its steps."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import engines.core.vllm_adapter.bounded as bounded
from engines.core import vllm_adapter as vllm
from engines.core.device import Row
from engines.core.request import DeviceWork, StageRequest
from engines.core.stage import AttentionWindow
from engines.core.vllm_adapter.bounded import SinkWindowManager, SinkWindowSpec, register
from engines.devices.hardware import load_gpu
from engines.devices.roofline import Work
from engines.devices.stage import VirtualStage
from engines.models import load_model
from tests.engines.stage import add, check_pool, finish, make_stage

THINKER = load_model("qwen3_omni_30b_a3b").stages["thinker"]
BLOCK = 16


def make_scheduler(
    blocks: int, window: int | None = None, sinks: int = 0, prefix_caching: bool = True, **limits: Any
) -> vllm.StageScheduler:
    """A scheduler over `blocks` allocatable KV blocks."""
    stage = make_stage(blocks=blocks + 1, prefix_caching=prefix_caching, **{"max_num_batched_tokens": 8192, **limits})
    stage = replace(stage, max_model_len=min(32_768, blocks * BLOCK))
    if window is not None:
        stage = stage.extended(AttentionWindow(window, sinks))
    return vllm.make_scheduler(stage, vllm.StageScheduler)


def behind(computed: int, window: int) -> int:
    """Whole blocks that no query behind `computed` tokens sees: the query at t sees keys k > t - W."""
    return max(0, computed - window + 1) // BLOCK


def table(scheduler: vllm.StageScheduler, name: str) -> list[bool]:
    """Whether a session holds each block of its table."""
    return [block > 0 for block in scheduler.block_ids(name)]


def conserve(scheduler: vllm.StageScheduler) -> None:
    """Each block is free, or held by as many sessions as its count says."""
    pool = scheduler.kv_cache_manager.block_pool
    check_pool(pool)
    held = Counter(block for name in scheduler.requests for block in scheduler.block_ids(name) if block)
    assert {block.block_id: block.ref_cnt for block in pool.blocks if block.ref_cnt and not block.is_null} == held


class Bench:
    """Sessions on one scheduler. Tokens follow from the voice and the position, so that equal voices share blocks."""

    def __init__(self, scheduler: vllm.StageScheduler, caching: bool = True) -> None:
        self.scheduler = scheduler
        self.hash_blocks = BLOCK if caching else None
        self.trace: list[object] = []
        self.fed: dict[str, int] = {}
        self.now = 0.0

    def feed(self, name: str, voice: int, tokens: int, answer: int) -> None:
        start = self.fed.get(name, 0)
        self.fed[name] = start + tokens
        prompt = [voice * 10_000 + start + i for i in range(tokens)]
        self.now += 0.01
        self.scheduler.add_request(vllm.make_chunk(name, prompt, answer, self.now, self.hash_blocks))

    def close(self, name: str) -> None:
        self.fed.pop(name, None)
        self.scheduler.abort([name])

    def step(self) -> list:
        scheduler = self.scheduler
        output = scheduler.schedule()
        tables = {name: scheduler.block_ids(name) for name in scheduler.requests}
        self.trace.append((dict(output.num_scheduled_tokens), set(output.preempted_req_ids or ()), tables))
        return finish(scheduler, output, lambda row: row.context % 100)


SESSION = st.integers(0, 4)
OPS = st.lists(
    st.tuples(st.just("feed"), SESSION, st.integers(1, 120), st.integers(1, 30))
    | st.tuples(st.just("step"), st.integers(1, 12))
    | st.tuples(st.just("close"), SESSION),
    min_size=5,
    max_size=60,
)
RESUMED = [("feed", 0, 120, 30), ("step", 12), ("close", 0), ("feed", 1, 120, 5), ("step", 9), ("feed", 1, 90, 5)]
"""A session that begins with what the prefix cache has of another one."""


def play(bench: Bench, ops: list, after: Callable[[list], None] = lambda rows: None) -> None:
    """Sessions 0 and 1 hear the same, the others something else each."""
    for op in ops:
        if op[0] == "feed":
            bench.feed(f"s{op[1]}", max(0, op[1] - 1), op[2], op[3])
        elif op[0] == "close":
            bench.close(f"s{op[1]}")
        else:
            for _ in range(op[1]):
                after(bench.step())


@settings(max_examples=60)
@given(
    ops=OPS,
    window=st.integers(1, 200),
    sinks=st.sampled_from([0, 1, 16, 17, 32, 60]),
    blocks=st.integers(24, 90),
    caching=st.booleans(),
    rescue=st.booleans(),
)
@example(ops=RESUMED, window=40, sinks=17, blocks=90, caching=True, rescue=False)
def test_a_session_holds_its_sinks_and_its_window_and_nothing_else(ops, window, sinks, blocks, caching, rescue):
    scheduler = make_scheduler(blocks, window, sinks, caching, max_num_batched_tokens=96)
    scheduler.preempts_waiting = rescue
    bench = Bench(scheduler, caching)
    pinned = -(-sinks // BLOCK)

    def check(rows: list) -> None:
        for row in rows:
            if row.request_id not in scheduler.requests:
                continue
            held = table(scheduler, row.request_id)
            gone = behind(row.context, window)
            assert len(held) == -(-(row.context + row.tokens) // BLOCK)
            assert held == [i < pinned or i >= gone for i in range(len(held))]
            assert scheduler.blocks_held(row.request_id) == sum(held)
        for name in scheduler.requests:
            assert all(table(scheduler, name)[:pinned])
        conserve(scheduler)

    play(bench, ops, check)
    for name in list(scheduler.requests):
        bench.close(name)
    assert scheduler.free_blocks == scheduler.allocatable_blocks
    assert not scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks


@settings(max_examples=25)
@given(ops=OPS, window=st.integers(1, 200), blocks=st.integers(24, 90), caching=st.booleans())
def test_a_window_without_sinks_schedules_as_vllms_sliding_window(ops, window, blocks, caching):
    def no_sinks(config, window, **shape):
        register(config)
        return SinkWindowSpec(**shape, sliding_window=window.tokens, sinks=0)

    def played() -> tuple[type, list[object], Any]:
        bench = Bench(make_scheduler(blocks, window, 0, caching, max_num_batched_tokens=96), caching)
        play(bench, ops)
        [manager] = bench.scheduler.kv_cache_manager.coordinator.single_type_managers
        return type(manager), bench.trace, bench.scheduler.counters

    stock, *expected = played()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounded, "kv_spec", no_sinks)
        ours, *found = played()
    assert stock is not SinkWindowManager and ours is SinkWindowManager
    assert found == expected


def hit(scheduler: vllm.StageScheduler, prompt: int) -> int:
    """Tokens of a new request of `prompt` tokens that the prefix cache has."""
    request = add(scheduler, "again", prompt=prompt, output=1, hashed=True)
    [row] = finish(scheduler, scheduler.schedule())
    assert request.request_id not in scheduler.requests
    return row.context


def cached(scheduler: vllm.StageScheduler, tokens: int) -> list[int]:
    """Compute a prompt and let it go; the ids of its blocks, from the first token's on."""
    add(scheduler, "first", prompt=tokens, output=1, hashed=True)
    output = scheduler.schedule()
    blocks = scheduler.block_ids("first")
    finish(scheduler, output)
    return blocks


def test_a_prefix_hit_takes_up_the_sinks_with_the_window():
    scheduler = make_scheduler(100, window=64, sinks=32)
    blocks = cached(scheduler, 320)
    request = add(scheduler, "again", prompt=320, output=1, hashed=True)
    [row] = vllm.rows_of(scheduler, scheduler.schedule())
    assert (row.context, row.tokens) == (304, 16)
    ids = scheduler.block_ids(request.request_id)
    assert ids[:19] == blocks[:2] + [0] * 13 + blocks[15:19]
    assert scheduler.blocks_held("again") == 7
    assert scheduler.counters["pinned_blocks"] == 2
    scheduler.abort(["again"])
    assert scheduler.counters["freed_behind_window"] == 13  # counted when a request ends


@pytest.mark.parametrize(
    ("tokens", "sinks", "lost", "found"),
    [(320, 32, 0, 0), (320, 32, 1, 0), (320, 32, 2, 304), (320, 32, 18, 32), (40, 64, None, 32)],
)
def test_a_hit_without_its_sinks_is_a_miss(tokens: int, sinks: int, lost: int | None, found: int):
    """A hit needs blocks 0 and 1, the sinks. Block 2 is neither sink nor in the window of 64 tokens. Without block 18,
    at the end, the sinks are still a prefix. A prompt of 40 tokens, less than its sinks, has 2 full blocks."""
    scheduler = make_scheduler(100, window=64, sinks=sinks)
    blocks = cached(scheduler, tokens)
    if lost is not None:
        scheduler.kv_cache_manager.evict_blocks({blocks[lost]})
    assert hit(scheduler, tokens) == found


@pytest.mark.parametrize(("sinks", "more"), [(0, 0), (1, 1), (16, 1), (17, 2), (33, 3)])
def test_sinks_add_their_blocks_to_vllms_bound_of_a_request(sinks: int, more: int):
    """Sinks add their blocks to vLLM's bound of a sliding window."""
    scheduler = make_scheduler(4000, window=1024, sinks=sinks)
    [manager] = scheduler.kv_cache_manager.coordinator.single_type_managers
    spec = scheduler.kv_cache_config.kv_cache_groups[0].kv_cache_spec
    sized = spec.max_memory_usage_bytes(scheduler.vllm_config) // spec.page_size_bytes
    assert manager.max_admission_blocks_per_request == sized == -(-(1023 + 8192) // BLOCK) + 1 + more


@given(context=st.integers(0, 300), tokens=st.integers(1, 300), reach=st.integers(1, 200))
def test_work_counts_the_keys_that_each_token_sees(context: int, tokens: int, reach: int):
    """Attention pairs are exact to one pair a token."""
    row = Row("s", tokens, context, True)
    work = Work.of([row], reach)
    assert work.kv_tokens == min(context, reach) + tokens
    exact = sum(min(context + i, reach) for i in range(1, tokens + 1))
    assert work.attention_pairs == pytest.approx(exact, abs=tokens)
    assert Work.of([row], context + tokens) == Work.of([row])


@pytest.fixture(scope="module")
def stage() -> VirtualStage:
    """The stage of a thinker that runs no step."""
    gpu: Any = SimpleNamespace(facts=load_gpu("h200"), count=1)
    return VirtualStage(THINKER, gpu)


FRAMES = DeviceWork(2.0, chunk_starts=[0, 55, 110])
TURN = DeviceWork(3.0, 20, encoded_at=100)


@pytest.mark.parametrize(
    ("asked", "context", "tokens", "audio_s", "images"),
    [
        (FRAMES, 0, 150, 6.0, ()),  # a re-prefill encodes all frames of 2 s
        (FRAMES, 16, 40, 2.0, ()),
        (FRAMES, 1, 54, 0.0, ()),
        (FRAMES, 138, 1, 0.0, ()),
        (TURN, 0, 100, 0.0, ()),
        (TURN, 64, 37, 3.0, (20,)),
        (TURN, 100, 50, 3.0, (20,)),
        (TURN, 101, 49, 0.0, ()),
    ],
)
def test_a_step_encodes_sound_and_images_that_begin_in_it(
    stage: VirtualStage, asked: DeviceWork, context: int, tokens: int, audio_s: float, images: tuple[int, ...]
):
    request = StageRequest("thinker", 0, 0, [0] * 150, 0, work=asked)
    work = stage.work([Row("s", tokens, context, True)], {"s": request})
    assert (work.audio_s, work.images) == (audio_s, images)
    assert work.clips == audio_s / asked.audio_s
