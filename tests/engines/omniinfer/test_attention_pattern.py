"""Compressed layers, which keep first and last tokens: attention, held blocks, bytes of a hand-over."""

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core import vllm_adapter as vllm
from engines.core.stage import AttentionWindow, Stage, reach, windowed_share
from engines.core.vllm_adapter.bounded import SinkWindowManager
from engines.systems.omniinfer.attention_pattern import AttentionPattern, compressed, split_pool
from engines.systems.omniinfer.omniinfer_params import AttentionParams
from tests.engines.real import clean, stage, steps, submit, words
from tests.engines.stage import finish, make_stage
from workloads.errors import UserError


@given(st.integers(0, 700), st.integers(0, 200), st.integers(2, 400), st.sampled_from([1, 16, 128]))
def test_a_hand_over_moves_the_blocks_in_which_the_next_query_sees_a_token(tokens, sinks, recent, size):
    pattern = AttentionPattern((True, False, True), sinks, recent)
    seen = {k // size for k in range(tokens) if k < sinks or k > tokens - recent}
    assert pattern.kept_blocks(tokens, size) == len(seen | {k // size for k in range(min(tokens, sinks))})
    full, compressed = pattern.handover_bytes(tokens, size, 10)
    assert full == -(-tokens // size) * size * 10
    assert compressed == 2 * pattern.kept_blocks(tokens, size) * size * 10


def test_a_pool_is_divided_by_beta():
    """beta = 0.2, 30 of 61 layers and one more entry: 1.73 times as many tokens in full layers (specification)."""
    full, compressed = split_pool(10_000, 32, 30, beta=0.2)
    assert (full / 10_000, compressed) == (pytest.approx(1.73, abs=0.005), 2000)


@pytest.mark.parametrize("text", ["010", "01012", "010x", "0102"])
def test_a_pattern_has_a_digit_for_each_layer(text: str):
    with pytest.raises(UserError, match=r"should have 4 characters"):
        AttentionPattern.of(text, 4)


def test_a_pattern_of_another_model_is_refused():
    with pytest.raises(UserError, match="of 61 layers, but stage 'talker' has 20"):
        AttentionPattern.of("01" * 30 + "0", 61).on(make_stage())


def test_every_second_layer_is_compressed_unless_a_pattern_is_given():
    stage = make_stage(prefix_caching=True)

    def compress(**params: Any) -> Stage:
        return compressed(stage, AttentionParams.model_validate(params))

    every = compress()
    assert every.extension(AttentionWindow) == AttentionWindow(384, 128, tuple(range(1, 20, 2)))
    assert (windowed_share(every), reach(every), every.prefix_caching) == (0.5, 512, False)
    three = compress(attention_pattern="1" * 3 + "0" * 17, attention_sinks=0, attention_recent=64)
    assert three.extension(AttentionWindow) == AttentionWindow(64, 0, (0, 1, 2))
    assert compress(attention_pattern="0" * 20) == stage
    assert (windowed_share(stage), reach(stage)) == (1.0, None)


WINDOW, SINKS = 48, 16
TWENTY = AttentionPattern.of("10" * 10, 20, SINKS, WINDOW)


def scheduler(blocks=200, **limits):
    return vllm.make_scheduler(TWENTY.on(make_stage(blocks=blocks, **limits)), vllm.StageScheduler)


def tables(made, name):
    """Block ids of a request in compressed layers (True) and in full ones (False)."""
    managers = made.kv_cache_manager.coordinator.single_type_managers
    return {isinstance(each, SinkWindowManager): [b.block_id for b in each.req_to_blocks[name]] for each in managers}


def held(made, name):
    """Block ids that hold KV: blocks behind a window are null."""
    return {compressed: [block for block in ids if block] for compressed, ids in tables(made, name).items()}


def advance(made):
    return finish(made, made.schedule())


def test_compressed_layers_hold_their_blocks_and_full_layers_all():
    """Two groups of ten layers each over one pool, of which a block is half as large."""
    made, most = scheduler(), 0
    assert made.allocatable_blocks == 2 * 200 - 1
    made.add_request(vllm.make_request("a", list(range(700)), 100, 0.0, None))
    while advance(made) and "a" in made.requests:
        ids, own = tables(made, "a"), held(made, "a")
        assert own[False] == ids[False] and ids[True][0]
        assert made.allocatable_blocks - made.free_blocks == len(own[False]) + len(own[True])
        assert set(own[True]).isdisjoint(own[False])
        most = max(most, len(own[True]))
        if made.requests["a"].num_computed_tokens > 700:
            # One more than a hand-over: the block that the step writes to.
            assert len(own[True]) <= TWENTY.kept_blocks(made.requests["a"].num_computed_tokens, 16) + 1
    assert most >= 44  # the prompt's blocks, before its first step is over
    assert made.free_blocks == made.allocatable_blocks


@given(st.integers(1, 900))
def test_kv_from_elsewhere_gets_the_blocks_that_a_hand_over_moves(tokens):
    """Through vLLM's own accounts of tokens that a connector brings."""
    made = scheduler()
    manager, free = made.kv_cache_manager, made.free_blocks
    request = vllm.make_request("a", [1] * (tokens + 1), 20, 0.0, None)
    assert manager.allocate_slots(request, 0, num_external_computed_tokens=tokens, delay_cache_blocks=True)
    full, short = (len(held(made, "a")[compressed]) for compressed in (False, True))
    assert (full, short) == (-(-tokens // 16), TWENTY.kept_blocks(tokens, 16))
    assert free - made.free_blocks == full + short
    assert TWENTY.handover_bytes(tokens, 16, 1) == (10 * 16 * full, 10 * 16 * short)
    for request.num_computed_tokens in range(tokens, tokens + 100):
        assert manager.allocate_slots(request, 1)
        assert tables(made, "a")[True][0]  # the sink stays
        request.append_output_token_ids(7)
    manager.free(request)
    assert made.free_blocks == free


LAYERS, REAL_WINDOW, REAL_SINKS = (0, 2), 100, 40


@cache
def executed():
    from tests.engines.dense import with_dense

    pattern = AttentionPattern.of("1010", 4, REAL_SINKS, REAL_WINDOW)
    return with_dense(pattern.on(stage(kv_pool_blocks=64)))


def test_on_real_execution_tokens_are_those_of_a_dense_model_under_the_mask():
    model, dense = executed()
    groups = model.runner.kv_cache_config.kv_cache_groups
    layers = {type(group.kv_cache_spec).__name__: len(group.layer_names) for group in groups}
    assert layers == {"FullAttentionSpec": 2, "SinkWindowSpec": 2}
    asked = [words(count, seed) for seed, count in enumerate((500, 120, 30))]
    with clean(model) as made:
        said = {name: [] for name in submit(model, asked, 40)}
        for _ in steps(model, said):
            # What no request holds is spoilt: a layer that read it would say something else.
            free = [b.block_id for b in made.kv_cache_manager.block_pool.free_block_queue.get_all_free_blocks()]
            for kv in model.runner.kv_caches:
                kv[free] = 1e4
    for prompt, answer in zip(asked, said.values(), strict=True):
        dense.check(prompt, answer, REAL_WINDOW, REAL_SINKS, LAYERS)
    for layers in (None, (0,), (1, 3)):  # and of no other mask
        with pytest.raises(AssertionError):
            dense.check(asked[0], said["r0"], REAL_WINDOW, REAL_SINKS, layers)
    dense.check(asked[2], said["r2"])  # nothing is left out of a context this short
