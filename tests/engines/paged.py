"""Batches in a paged KV cache in which everything that no query may read is NaN, and what attention over them is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention

from engines.core.vllm_adapter.attention.cpu import visible

TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-2}


class Case(NamedTuple):
    """`requests`: (tokens with this step's, queries of this step) each."""

    requests: tuple[tuple[int, int], ...]
    window: int
    sinks: int
    heads: int = 4
    kv_heads: int = 4
    size: int = 32
    block: int = 16
    dtype: torch.dtype = torch.float32

    def __str__(self) -> str:
        requests = "+".join(f"{length}q{count}" for length, count in self.requests)
        heads, kind = f"{self.heads}:{self.kv_heads}x{self.size}", str(self.dtype).removeprefix("torch.")
        return f"{requests}-W{self.window}-S{self.sinks}-{heads}-b{self.block}-{kind}"


W, S = 40, 20
"""No multiple of a block or a tile, where a case does not say otherwise."""

CASES = [
    *(Case(((length, 1),), W, S) for length in (1, 7, 19, 20, 21, 40, 59, 60, 61, 130)),  # L < S to L > W + S
    # The window's edge at a block's edge, and at a tile's.
    *(Case(((length, 1),), 32, 16) for length in (16, 17, 32, 33, 47, 48, 49, 64, 65)),
    *(Case(((length, 1),), 64, S) for length in (63, 64, 65, 95, 96, 97)),
    # 64: more than the window and, of the shorter, into what it covers.
    *(Case(((90, 1), (200, 1)), W, sinks) for sinks in (0, 1, 15, 16, 17, 64)),
    *(Case(((length, length),), W, S) for length in (5, 45, 130)),  # prefill
    *(Case(((150, count),), W, S) for count in (2, 33, 70)),  # a later chunk of one
    # Prefill and decode in one batch, 1, 4 and 8 heads to a KV head.
    *(Case(((130, 1), (70, 70), (5, 1), (140, 17), (33, 1)), W, S, kv_heads=kv) for kv in (4, 1)),
    Case(((130, 1), (70, 70), (5, 1)), W, S, heads=8, kv_heads=1),
    Case(((130, 1), (50, 20)), W, S, heads=14, kv_heads=2, size=48),  # no power of two
    Case(((130, 1), (70, 70)), W, S, heads=4, kv_heads=2, size=64, block=32),
    Case(((200, 1), (60, 20)), 1, 0),  # itself alone
    Case(((200, 1), (60, 20)), 1, 3),
    Case(((100, 1), (60, 20)), 4096, S),  # a window never left: full attention
    *(
        Case(((130, 1), (70, 70), (5, 1)), W, S, heads=4, kv_heads=kv, size=64, dtype=dtype)
        for dtype in (torch.bfloat16, torch.float16)
        for kv in (4, 1)
    ),
]


@dataclass
class Batch:
    """A step's queries over its cache; `expected`: their attention in float32. Places of `table` behind a window or
    past the last token lead to the null block 0 or to a block of NaN."""

    case: Case
    query: torch.Tensor
    cache: torch.Tensor
    starts: list[int]
    lengths: list[int]
    table: torch.Tensor
    scale: float
    expected: torch.Tensor

    def check(self, output: torch.Tensor) -> None:
        """Raises AssertionError unless `output` is finite and as expected."""
        assert output.isfinite().all(), "something was read that nobody sees"
        tolerance = TOLERANCES[self.case.dtype]
        torch.testing.assert_close(output.float().cpu(), self.expected, atol=tolerance, rtol=tolerance)


def batch(case: Case, seed: int = 0) -> Batch:
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng).to(case.dtype)

    counts = [count for _, count in case.requests]
    lengths = [length for length, _ in case.requests]
    most = max(-(-length // case.block) for length in lengths)
    ids = (torch.randperm(len(counts) * most, generator=rng) + 1).view(len(counts), most)
    cache = torch.full((ids.numel() + 1, case.kv_heads, case.block, 2 * case.size), torch.nan, dtype=case.dtype)
    table = ids.clone()
    query, expected, scale = [], [], case.size**-0.5
    for request, (length, count) in enumerate(case.requests):
        q = normal(count, case.heads, case.size)
        k, v = normal(length, case.kv_heads, case.size), normal(length, case.kv_heads, case.size)
        query.append(q)
        expected.append(dense_attention(q, k, v, scale, case.window, case.sinks))
        behind = max(0, length - count - case.window + 1)  # what the step's first query does not see any more
        for position in [*range(min(case.sinks, behind)), *range(behind, length)]:
            block = ids[request, position // case.block]
            cache[block, :, position % case.block] = torch.cat([k[position], v[position]], dim=-1)
        for place in range(most):
            freed = -(-case.sinks // case.block) <= place < behind // case.block
            if (freed or place * case.block >= length) and place % 2:
                table[request, place] = 0  # every other keeps its old id
    starts = [sum(counts[:i]) for i in range(len(counts) + 1)]
    return Batch(case, torch.cat(query), cache, starts, lengths, table, scale, torch.cat(expected))


def failures(attend: Callable[[Batch], torch.Tensor], cases: Sequence[Case]) -> dict[str, str]:
    """Return the error of each case that fails."""
    wrong = {}
    for case in cases:
        prepared = batch(case)
        try:
            prepared.check(attend(prepared))
        except Exception as error:
            wrong[str(case)] = f"{type(error).__name__}: {error}"
    return wrong


def dense_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, window: int, sinks: int
) -> torch.Tensor:
    """Return the attention of one request's last tokens over its whole context, in float32.

    `query`: (Q, heads, D), the last Q of the L tokens; `key`, `value`: (L, kv heads, D). Query heads share KV heads in
    groups, in order. Returns (Q, heads, D).
    """
    q, k, v = (x.float().transpose(0, 1) for x in (query, key, value))
    positions = torch.arange(len(key))
    seen = visible(positions[-len(query) :], positions, window, sinks)
    return scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale, enable_gqa=True).transpose(0, 1)
