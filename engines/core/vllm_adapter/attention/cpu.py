"""Exact attention over sinks and window from a paged KV cache, in torch: gather the visible blocks, then attend.

A step's gathers are the same for every layer, so they are planned once.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention

QUERY_TILE = 128
"""[chosen] queries of one request that attend together: a prefill gathers W + this many tokens at a time."""

DECODE_ROWS = 32
"""[chosen] requests with one query each that attend together; bounds the memory of a gather."""


def visible(query: torch.Tensor, key: torch.Tensor, window: int, sinks: int) -> torch.Tensor:
    """Return the mask of visible keys: (..., Q, K) of bool, from positions (..., Q) and (..., K) in tokens."""
    t, k = query.unsqueeze(-1), key.unsqueeze(-2)
    return (k <= t) & ((k < sinks) | (k > t - window))


class Gather(NamedTuple):
    """R requests that attend together, T queries each, over N blocks each (padded with any block, unseen).

    `tokens`: (R, T) rows of the step's queries; `blocks`: (R, N) ids; `seen`: (R, T, N * block size) of bool; `unseen`:
    requests and keys that none of the T queries sees, U each.
    """

    tokens: torch.Tensor
    blocks: torch.Tensor
    seen: torch.Tensor
    unseen: tuple[torch.Tensor, ...]


def plan(
    starts: Sequence[int], lengths: Sequence[int], table: torch.Tensor, block_size: int, window: int, sinks: int
) -> list[Gather]:
    """Return the tokens that each query of a step reads.

    `starts`: (requests + 1) first row of each request's queries; `lengths`: tokens of each request with this step's;
    `table`: (requests, blocks) block ids by position; only the visible ones are used.
    """
    gathers, decodes = [], []
    for request, length in enumerate(lengths):
        first, last = starts[request], starts[request + 1]
        if last - first == 1:
            decodes.append((request, first, length - 1, 1))
            continue
        for row in range(first, last, QUERY_TILE):
            position, count = length - (last - row), min(QUERY_TILE, last - row)
            gathers.append([(request, row, position, count)])
    gathers += [decodes[i : i + DECODE_ROWS] for i in range(0, len(decodes), DECODE_ROWS)]
    return [_gather(rows, table, block_size, window, sinks) for rows in gathers]


def _gather(
    rows: list[tuple[int, int, int, int]], table: torch.Tensor, block_size: int, window: int, sinks: int
) -> Gather:
    """Gather `rows`: (request, first row, its position, queries), with the same number of queries in each."""
    indices = [list(_blocks(position, count, block_size, window, sinks)) for _, _, position, count in rows]
    longest = max(len(each) for each in indices)
    index = torch.tensor([each + [-1] * (longest - len(each)) for each in indices])
    requests = torch.tensor([request for request, *_ in rows])
    blocks = table[requests.unsqueeze(1), index.clamp(min=0)].long()
    keys = (index.unsqueeze(-1) * block_size + torch.arange(block_size)).flatten(1)
    keys[index.repeat_interleave(block_size, dim=1) < 0] = torch.iinfo(torch.long).max  # after every query
    steps = torch.arange(rows[0][3])
    first, position = (torch.tensor([row[i] for row in rows]).unsqueeze(1) for i in (1, 2))
    seen = visible(position + steps, keys, window, sinks)
    return Gather(first + steps, blocks, seen, (~seen.any(dim=1)).nonzero(as_tuple=True))


def _blocks(position: int, count: int, block_size: int, window: int, sinks: int) -> Iterator[int]:
    """Yield the places in the block table that `count` queries from `position` on read, each once."""
    last = (position + count - 1) // block_size
    pinned = min(-(-sinks // block_size), last + 1)
    yield from range(pinned)
    yield from range(max(pinned, max(0, position - window + 1) // block_size), last + 1)


def attend(
    query: torch.Tensor, cache: torch.Tensor, gathers: Sequence[Gather], scale: float, output: torch.Tensor
) -> None:
    """Write the attention of every planned query to `output`.

    `query`, `output`: (tokens, heads, D); `cache`: (blocks, kv heads, block size, 2 D), K before V.
    """
    heads, size = query.shape[1:]
    kv_heads = cache.shape[1]
    group, each_head = heads // kv_heads, torch.arange(kv_heads)[:, None]
    for tokens, blocks, seen, (request, place) in gathers:
        requests, count = tokens.shape
        kv = cache[blocks[:, None], each_head].flatten(2, 3)  # (R, kv heads, keys, 2 D), a copy
        # An unseen key has weight nought, but nought times the content of a freed block (NaN) is not nought.
        kv[request, :, place] = 0.0
        key, value = kv.split(size, dim=-1)
        grouped = query[tokens].view(requests, count, kv_heads, group, size)
        grouped = grouped.permute(0, 2, 3, 1, 4).reshape(requests, kv_heads, group * count, size)
        mask = seen.repeat(1, group, 1).unsqueeze(1)
        result = scaled_dot_product_attention(grouped, key, value, attn_mask=mask, scale=scale)
        result = result.view(requests, kv_heads, group, count, size).permute(0, 3, 1, 2, 4)
        output[tokens] = result.reshape(requests, count, heads, size)


def store(key: torch.Tensor, value: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
    """Write K and V, (tokens, kv heads, D) each, to their slots of `cache` (shaped as in `attend`); slot -1: not
    written."""
    kept = slots >= 0
    slots = slots[kept]
    size = cache.shape[2]
    cache[slots // size, :, slots % size] = torch.cat([key, value], dim=-1)[: len(kept)][kept]
