"""Attention over sinks and window: the mask against its definition, the paged gather against the dense reference."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.vllm_adapter.attention.cpu import attend, plan, store, visible
from tests.engines.paged import CASES, Batch, Case, batch, dense_attention


def gathered(prepared: Batch) -> torch.Tensor:
    case, output = prepared.case, torch.full_like(prepared.query, torch.nan)
    gathers = plan(prepared.starts, prepared.lengths, prepared.table, case.block, case.window, case.sinks)
    attend(prepared.query, prepared.cache, gathers, prepared.scale, output)
    return output


@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 70))
def test_a_query_sees_sinks_and_window_and_nothing_to_come(length: int, window: int, sinks: int):
    positions = torch.arange(length)
    seen = visible(positions, positions, window, sinks)
    for t in range(length):
        expected = set(range(min(sinks, t + 1))) | set(range(max(0, t - window + 1), t + 1))
        assert set(seen[t].nonzero().flatten().tolist()) == expected


def test_the_reference_is_softmax_attention_query_by_query():
    rng = torch.Generator().manual_seed(0)
    length, window, sinks = 30, 8, 3
    q = torch.randn(length, 4, 16, generator=rng)
    k, v = torch.randn(length, 2, 16, generator=rng), torch.randn(length, 2, 16, generator=rng)
    got = dense_attention(q, k, v, 0.25, window, sinks)
    for t in range(length):
        kept = [key for key in range(t + 1) if key < sinks or key > t - window]
        for head in range(4):
            weights = torch.softmax(k[kept, head // 2] @ q[t, head] * 0.25, dim=0)
            torch.testing.assert_close(got[t, head], weights @ v[kept, head // 2])
    last = dense_attention(q[-3:], k, v, 0.25, window, sinks)
    torch.testing.assert_close(last, got[-3:])


LONG = Case(((400, 300), *(((100 + i, 1)) for i in range(40))), 64, 16)
"""A long prefill and a large batch attend in parts."""


@pytest.mark.parametrize("case", [*CASES, LONG], ids=str)
def test_the_gather_gives_what_the_reference_gives(case: Case):
    prepared = batch(case)
    prepared.check(gathered(prepared))


requests = st.integers(1, 90).flatmap(lambda n: st.tuples(st.just(n), st.just(1) | st.integers(1, n)))


@settings(max_examples=60)
@given(
    st.lists(requests, min_size=1, max_size=5).map(tuple),
    st.integers(1, 80),
    st.integers(0, 50),
    st.sampled_from([(4, 4), (4, 1), (8, 1)]),
    st.sampled_from([8, 16, 32]),
)
def test_whatever_the_batch(asked, window: int, sinks: int, heads: tuple[int, int], block: int):
    prepared = batch(Case(asked, window, sinks, *heads, size=8, block=block))
    prepared.check(gathered(prepared))


def test_what_is_stored_is_found_and_padding_is_nowhere():
    cache = torch.zeros(3, 2, 4, 6)
    key, value = torch.randn(3, 2, 3), torch.randn(3, 2, 3)
    store(key, value, cache, torch.tensor([5, -1, 11]))
    assert torch.equal(cache[1, :, 1], torch.cat([key[0], value[0]], dim=-1))
    assert torch.equal(cache[2, :, 3], torch.cat([key[2], value[2]], dim=-1))
    assert cache.count_nonzero() == 2 * 2 * 6
