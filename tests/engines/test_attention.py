"""Attention on the CPU over sinks and window: its mask, and the gather from the paged cache."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engines.core.vllm_adapter.attention.cpu import attend, plan, store, visible
from tests.engines.paged import CASES, Batch, Case, batch


def gathered(prepared: Batch) -> torch.Tensor:
    case, output = prepared.case, torch.full_like(prepared.query, torch.nan)
    gathers = plan(prepared.starts, prepared.lengths, prepared.table, case.block, case.window, case.sinks)
    attend(prepared.query, prepared.cache, gathers, prepared.scale, output)
    return output


@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 70))
def test_a_query_sees_the_sinks_and_its_window_and_no_later_token(length: int, window: int, sinks: int):
    positions = torch.arange(length)
    seen = visible(positions, positions, window, sinks)
    for t in range(length):
        expected = set(range(min(sinks, t + 1))) | set(range(max(0, t - window + 1), t + 1))
        assert set(seen[t].nonzero().flatten().tolist()) == expected


LONG = Case(((400, 300), *(((100 + i, 1)) for i in range(40))), 64, 16)
"""A long prefill and a large batch attend in parts."""


@pytest.mark.parametrize("case", [*CASES, LONG], ids=str)
def test_gathered_attention_equals_dense_attention(case: Case):
    prepared = batch(case)
    prepared.check(gathered(prepared))


def test_store_fills_the_slots_of_a_batch_and_skips_padding():
    """Blocks of 4 slots: slot 5 is place 1 of block 1, slot 11 is place 3 of block 2, and -1 is padding."""
    cache = torch.zeros(3, 2, 4, 6)
    key, value = torch.randn(3, 2, 3), torch.randn(3, 2, 3)
    store(key, value, cache, torch.tensor([5, -1, 11]))
    assert torch.equal(cache[1, :, 1], torch.cat([key[0], value[0]], dim=-1))
    assert torch.equal(cache[2, :, 3], torch.cat([key[2], value[2]], dim=-1))
    assert cache.count_nonzero() == 2 * 2 * 6
