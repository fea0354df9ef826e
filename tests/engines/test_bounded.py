"""Window and sinks on vLLM's real scheduler: which blocks a session holds, over random histories."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from vllm.v1.kv_cache_interface import SlidingWindowSpec

import engines.core.vllm_adapter.bounded as bounded
from engines.core import vllm_adapter as vllm
from engines.core.request import DeviceWork, StageRequest
from engines.core.stage import AttentionWindow, Stage
from engines.core.vllm_adapter.bounded import SinkWindowManager, SinkWindowSpec, register
from engines.deployments import load_deployment
from engines.devices.roofline import Work
from engines.devices.stage import VirtualStage
from engines.models import load_model
from tests.engines.stage import add, finish

THINKER = load_model("qwen3_omni_30b_a3b").stages["thinker"]
BLOCK = 16


def make_scheduler(
    blocks: int,
    window: int | None = None,
    sinks: int = 0,
    prefix_caching: bool = True,
    budget: int = 8192,
    slots: int = 256,
) -> vllm.StageScheduler:
    """A scheduler over `blocks` allocatable KV blocks."""
    stage = Stage(
        name="thinker",
        decoder=THINKER,
        gpus=((0,),),
        memory_share=0.9,
        max_num_seqs=slots,
        max_num_batched_tokens=budget,
        max_model_len=min(32_768, blocks * BLOCK),
        max_tokens=4096,
        prefix_caching=prefix_caching,
        kv_blocks=blocks + 1,
    )
    if window is not None:
        stage = stage.extended(AttentionWindow(window, sinks))
    return vllm.make_scheduler(stage, vllm.StageScheduler)


def behind(computed: int, window: int) -> int:
    """Whole blocks that no query behind `computed` tokens sees: the query at t sees keys k > t - W."""
    return max(0, computed - window + 1) // BLOCK


def table(scheduler: vllm.StageScheduler, name: str) -> list[bool]:
    """Of a session's blocks, which it holds."""
    return [block > 0 for block in scheduler.block_ids(name)]


def conserve(scheduler: vllm.StageScheduler) -> None:
    """Each block is free and in the queue once, or held by as many sessions as its count says."""
    pool = scheduler.kv_cache_manager.block_pool
    free = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
    held = [block for name in scheduler.requests for block in scheduler.block_ids(name) if block]
    assert len(free) == len(set(free)) == scheduler.free_blocks
    assert set(free).isdisjoint(held)
    assert len(free) + len(set(held)) == scheduler.allocatable_blocks
    for block in pool.blocks:
        if not block.is_null:
            assert block.ref_cnt == held.count(block.block_id)


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

    def settle(self, limit: int = 5000) -> None:
        for _ in range(limit):
            if not self.step():
                return
        raise AssertionError("no end in sight")


OPS = st.lists(
    st.one_of(
        st.tuples(st.just("feed"), st.integers(0, 4), st.integers(1, 120), st.integers(1, 30)),
        st.tuples(st.just("step"), st.integers(1, 12)),
        st.tuples(st.just("close"), st.integers(0, 4)),
    ),
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
    scheduler = make_scheduler(blocks, window, sinks, caching, budget=96, slots=16)
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
def test_without_sinks_it_is_vllm_s_own_sliding_window(ops, window, blocks, caching):
    stock = Bench(make_scheduler(blocks, window, 0, caching, budget=96, slots=16), caching)

    def no_sinks(config, window, **shape):
        register(config)
        return SinkWindowSpec(**shape, sliding_window=window.tokens, sinks=0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounded, "kv_spec", no_sinks)
        ours = Bench(make_scheduler(blocks, window, 0, caching, budget=96, slots=16), caching)
    managers = [bench.scheduler.kv_cache_manager.coordinator.single_type_managers[0] for bench in (stock, ours)]
    assert type(managers[0]) is not SinkWindowManager and type(managers[1]) is SinkWindowManager
    for bench in (stock, ours):
        play(bench, ops)
    assert stock.trace == ours.trace
    assert stock.scheduler.counters == ours.scheduler.counters


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


def drop(scheduler: vllm.StageScheduler, block_id: int) -> None:
    scheduler.kv_cache_manager.evict_blocks({block_id})


def test_a_prefix_hit_takes_up_the_sinks_with_the_window():
    scheduler = make_scheduler(100, window=64, sinks=32)
    blocks = cached(scheduler, 320)
    request = add(scheduler, "again", prompt=320, output=1, hashed=True)
    [row] = vllm.rows_of(scheduler, scheduler.schedule())
    assert (row.context, row.tokens) == (304, 16)
    ids = scheduler.block_ids(request.request_id)
    assert ids[:19] == blocks[:2] + [0] * 13 + blocks[15:19]
    assert scheduler.blocks_held("again") == 7


@pytest.mark.parametrize(("lost", "found"), [(0, 0), (1, 0), (2, 304), (18, 32)])
def test_a_hit_without_its_sinks_is_a_miss(lost: int, found: int):
    """Block 2 lies behind the window and is no sink: nobody misses it. Of a windowed prompt vLLM caches what a hit at
    its end needs and we the sinks; so when the end is lost, these two blocks are still a prefix."""
    scheduler = make_scheduler(100, window=64, sinks=32)
    blocks = cached(scheduler, 320)
    drop(scheduler, blocks[lost])
    assert hit(scheduler, 320) == found


def test_a_short_prompt_hits_as_far_as_it_was_computed():
    scheduler = make_scheduler(100, window=64, sinks=64)
    cached(scheduler, 40)
    assert hit(scheduler, 40) == 32


def test_what_a_hit_takes_out_of_the_free_blocks_is_reserved_with_its_sinks():
    """Seven blocks: two sinks and four of the window that are idle in the cache, and one for the rest. Counted without
    the sinks it is five, and the allocation would run out of blocks half-way."""
    for spare, fits in ((6, False), (7, True)):
        scheduler = make_scheduler(100, window=64, sinks=32)
        blocks = cached(scheduler, 320)
        pool = scheduler.kv_cache_manager.block_pool
        keep = {*blocks[:2], *blocks[15:19]}
        others = [block for block in pool.free_block_queue.get_all_free_blocks() if block.block_id not in keep]
        pool.touch(others[: scheduler.free_blocks - spare])
        assert scheduler.free_blocks == spare
        add(scheduler, "again", prompt=320, output=1, hashed=True)
        output = scheduler.schedule()
        assert ("again" in output.num_scheduled_tokens) is fits
        assert scheduler.free_blocks == (spare - 7 if fits else spare)
        assert scheduler.counters["alloc_fail_waiting"] == (not fits)


@given(
    window=st.integers(1, 5000),
    sinks=st.integers(0, 200),
    in_flight=st.integers(1, 10_000),
    longest=st.integers(16, 40_000),
)
def test_sinks_add_their_blocks_to_what_a_request_may_hold(window, sinks, in_flight, longest):
    shape = {"block_size": BLOCK, "num_kv_heads": 4, "head_size": 128, "dtype": torch.bfloat16}
    plain = SlidingWindowSpec(**shape, sliding_window=window)
    spec = SinkWindowSpec(**shape, sliding_window=window, sinks=sinks)
    more = spec.max_admission_blocks_per_request(in_flight, longest)
    assert more == plain.max_admission_blocks_per_request(in_flight, longest) + -(-sinks // BLOCK)


def test_vllm_sizes_its_pool_and_admits_by_the_same_bound():
    admitted, sized = [], []
    for sinks in (0, 33):
        scheduler = make_scheduler(4000, window=1024, sinks=sinks)
        [manager] = scheduler.kv_cache_manager.coordinator.single_type_managers
        spec = scheduler.kv_cache_config.kv_cache_groups[0].kv_cache_spec
        admitted.append(manager.max_admission_blocks_per_request)
        sized.append(spec.max_memory_usage_bytes(scheduler.vllm_config) // spec.page_size_bytes)
    assert admitted == sized == [-(-(1023 + 8192) // BLOCK) + 1, -(-(1023 + 8192) // BLOCK) + 1 + 3]


def test_sessions_closed_at_any_time_leave_nothing_behind():
    scheduler = make_scheduler(400, window=64, sinks=32)
    bench = Bench(scheduler)
    for i in range(6):
        bench.feed(f"s{i}", i, 300, 20)
    for i in range(6):
        for _ in range(5):
            bench.step()
        bench.feed(f"s{i}", i, 40, 5)
        bench.close(f"s{i}")
        assert f"s{i}" not in scheduler.requests
        conserve(scheduler)
    assert scheduler.free_blocks == scheduler.allocatable_blocks
    assert scheduler.counters["pinned_blocks"] == 12
    assert scheduler.counters["freed_behind_window"] > 6 * 10


class Span:
    """A row of a step."""

    request_id = "s"
    samples = True

    def __init__(self, context: int, tokens: int) -> None:
        self.context, self.tokens = context, tokens


@given(context=st.integers(0, 300), tokens=st.integers(1, 300), reach=st.integers(1, 200))
def test_work_counts_what_each_token_sees(context: int, tokens: int, reach: int):
    """Pairs as without a window: a token stands in the middle of those that see it."""
    work = Work.of([Span(context, tokens)], reach)
    assert work.kv_tokens == min(context, reach) + tokens
    exact = sum(min(context + i, reach) for i in range(1, tokens + 1))
    assert work.attention_pairs == pytest.approx(exact, abs=tokens)
    assert Work.of([Span(context, tokens)], context + tokens) == Work.of([Span(context, tokens)])


class Gpu:
    """What a stage asks of its GPU before it runs anything."""

    def __init__(self) -> None:
        self.facts = load_deployment("qwen3_omni_2gpu").gpu
        self.count = 1


def test_each_chunk_that_is_computed_is_encoded_again():
    """Three frames begin at 0, 55 and 110. A re-prefill encodes all of them, a decoding step none."""
    stage = VirtualStage(THINKER, Gpu())  # type: ignore[arg-type]
    request = StageRequest("thinker", 0, 0, [], 0, work=DeviceWork(2.0, chunk_starts=[0, 55, 110]))

    def clips(context: int, tokens: int) -> tuple[int, float]:
        work = stage.work([Span(context, tokens)], {"s": request})
        return work.clips, work.audio_s

    assert clips(0, 150) == (3, 6.0)
    assert clips(110, 28) == (1, 2.0)
    assert clips(55, 55) == (1, 2.0)
    assert clips(1, 54) == (0, 0.0)
    assert clips(138, 1) == (0, 0.0)
    assert clips(16, 40) == (1, 2.0)


@pytest.mark.parametrize("hit", (0, 64, 96))
@pytest.mark.parametrize("chunk", (40, 512))
def test_a_turn_is_encoded_once_however_much_of_its_context_is_cached(hit: int, chunk: int) -> None:
    """Its sound and its image begin behind 100 tokens of history, of which `hit` are found."""
    stage = VirtualStage(THINKER, Gpu())  # type: ignore[arg-type]
    request = StageRequest("thinker", 0, 1, [0] * 150, 10, work=DeviceWork(3.0, 20, encoded_at=100))
    steps = [Span(context, min(chunk, 150 - context)) for context in range(hit, 150, chunk)] + [Span(150, 1)]
    works = [(step, stage.work([step], {"s": request})) for step in steps]
    [(step, work)] = [(step, work) for step, work in works if work.clips or work.images]
    assert step.context <= 100 < step.context + step.tokens
    assert (work.clips, work.audio_s, work.images) == (1, 3.0, (20,))
