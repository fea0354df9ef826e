"""Paged attention over sinks and window in Triton (paper appendix A): two passes over the keys, one online softmax.

The sink pass takes keys below S, the window pass keys from S on, so that no key counts twice where the window covers
sinks. Invisible keys are never loaded: a masked weight of nought times NaN would be NaN. With `segments` > 1 the window
pass of each query is split over that many programs; the first takes the sinks. A second kernel merges.
"""

# pyright: reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false
# A kernel is launched as grid[...](...), and its constants are plain numbers: Triton's types know of neither.

import torch
import triton
import triton.language as tl

TILE = 32
"""[chosen] keys of one step of a pass; independent of the size of a block."""

SPLIT_AT = 512
"""[chosen] a decode over at least this many keys is split."""

SEGMENTS = 8
"""[chosen] parts of a split decode."""


@triton.jit
def _tile(
    keys, live, t, q, m, norm, acc,
    cache, table, kv_head, first, sinks, window, scale,
    stride_b, stride_h, stride_n,
    SINKS: tl.constexpr, BLOCK: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr,
):  # fmt: skip
    """Add one tile of either pass; `first`: position of the tile's first query, `live`: keys within the context."""
    if SINKS:
        live = live & (keys < sinks)
        seen = keys[None, :] <= t[:, None]
    else:
        live = live & (keys >= sinks) & (keys > first - window)
        seen = (keys[None, :] <= t[:, None]) & (keys[None, :] > t[:, None] - window)
    seen = seen & live[None, :]
    d = tl.arange(0, D_PAD)
    blocks = tl.load(table + keys // BLOCK, mask=live, other=0).to(tl.int64)
    rows = cache + blocks * stride_b + kv_head * stride_h + (keys % BLOCK) * stride_n
    inside = live[:, None] & (d[None, :] < D)
    k = tl.load(rows[:, None] + d[None, :], mask=inside, other=0.0)
    v = tl.load(rows[:, None] + D + d[None, :], mask=inside, other=0.0)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    scores = tl.where(seen, scores, float("-inf"))
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    base = tl.where(m_new == float("-inf"), 0.0, m_new)  # a row that has seen nothing yet
    p = tl.exp(scores - base[:, None])
    kept = tl.exp(m - base)
    norm = norm * kept + tl.sum(p, axis=1)
    acc = acc * kept[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    return m_new, norm, acc


@triton.jit
def attend(
    query, cache, tables, starts, lengths, output, part_m, part_l,
    scale, sinks, window,
    stride_qt, stride_qh, stride_b, stride_h, stride_n, stride_table, stride_ot, stride_oh, stride_os,
    heads,
    GROUP: tl.constexpr, QUERIES: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
    D: tl.constexpr, D_PAD: tl.constexpr, SEGMENTS: tl.constexpr,
):  # fmt: skip
    """Run program (request, KV head, tile of queries × segment): ROWS rows, QUERIES queries of GROUP heads each."""
    request, kv_head = tl.program_id(0), tl.program_id(1)
    tile, segment = tl.program_id(2) // SEGMENTS, tl.program_id(2) % SEGMENTS
    start = tl.load(starts + request)
    count = tl.load(starts + request + 1) - start
    if tile * QUERIES >= count:
        return
    length = tl.load(lengths + request)
    row = tl.arange(0, ROWS)
    index = tile * QUERIES + row // GROUP
    valid = (index < count) & (row < QUERIES * GROUP)
    head = kv_head * GROUP + row % GROUP
    t = length - count + index
    first = length - count + tile * QUERIES
    end = tl.minimum(first + QUERIES, length)  # after the last key of the tile's last query
    d = tl.arange(0, D_PAD)
    at = (start + index).to(tl.int64)
    inside = valid[:, None] & (d[None, :] < D)
    q = tl.load(query + at[:, None] * stride_qt + head[:, None] * stride_qh + d[None, :], mask=inside, other=0.0)
    table = tables + request.to(tl.int64) * stride_table

    m = tl.full([ROWS], float("-inf"), tl.float32)
    norm = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, D_PAD], tl.float32)
    offsets = tl.arange(0, TILE)
    if segment == 0:
        for base in range(0, tl.minimum(sinks, end), TILE):
            keys = base + offsets
            m, norm, acc = _tile(
                keys, keys < end, t, q, m, norm, acc, cache, table, kv_head, first, sinks, window, scale,
                stride_b, stride_h, stride_n, True, BLOCK, D, D_PAD,
            )  # fmt: skip
    low = tl.maximum(first - window + 1, sinks) // TILE * TILE
    tiles = tl.maximum(tl.cdiv(end - low, TILE), 0)
    each = tl.cdiv(tiles, SEGMENTS)
    stop = tl.minimum(low + (segment + 1) * each * TILE, low + tiles * TILE)
    for base in range(low + segment * each * TILE, stop, TILE):
        keys = base + offsets
        m, norm, acc = _tile(
            keys, keys < end, t, q, m, norm, acc, cache, table, kv_head, first, sinks, window, scale,
            stride_b, stride_h, stride_n, False, BLOCK, D, D_PAD,
        )  # fmt: skip

    if SEGMENTS == 1:
        acc = acc / tl.where(norm > 0, norm, 1.0)[:, None]
    else:
        part = (at * heads + head) * SEGMENTS + segment
        tl.store(part_m + part, m, mask=valid)
        tl.store(part_l + part, norm, mask=valid)
    to = at[:, None] * stride_ot + head[:, None] * stride_oh + segment * stride_os + d[None, :]
    tl.store(output + to, acc.to(output.dtype.element_ty), mask=inside)


@triton.jit
def merge(
    parts, part_m, part_l, output, stride_pt, stride_ph, stride_ps, stride_ot, stride_oh, heads,
    D: tl.constexpr, D_PAD: tl.constexpr, SEGMENTS: tl.constexpr,
):  # fmt: skip
    """Run program (token, head): the softmax over all segments; an empty one has weight nought."""
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    s, d = tl.arange(0, SEGMENTS), tl.arange(0, D_PAD)
    part = (token * heads + head) * SEGMENTS + s
    m, norm = tl.load(part_m + part), tl.load(part_l + part)
    weight = tl.exp(m - tl.max(m, axis=0))
    where = token * stride_pt + head * stride_ph + s[:, None] * stride_ps + d[None, :]
    acc = tl.load(parts + where, mask=d[None, :] < D, other=0.0)
    result = tl.sum(acc * weight[:, None], axis=0) / tl.sum(norm * weight, axis=0)
    tl.store(output + token * stride_ot + head * stride_oh + d, result.to(output.dtype.element_ty), mask=d < D)


def paged_attention(
    query: torch.Tensor,
    cache: torch.Tensor,
    table: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
    longest_query: int,
    scale: float,
    window: int,
    sinks: int,
    output: torch.Tensor,
    segments: int = 1,
) -> None:
    """Write the attention of every query to `output`.

    `query`, `output`: (tokens, heads, D); `cache`: (blocks, kv heads, block size, 2 D), K before V, any strides
    but the last; `table`: (requests, blocks) ids; `starts`: (requests + 1) first row of each request;
    `lengths`: (requests) tokens of each with this step's; `longest_query`: rows of the longest request.
    `segments`: a power of two.
    """
    tokens, heads, size = query.shape
    kv_heads, block = cache.shape[1:3]
    group, padded = heads // kv_heads, triton.next_power_of_2(size)
    rows = max(16, triton.next_power_of_2(group))
    if longest_query > 1:
        rows = max(rows, 64)
    queries = rows // group
    parts, part_m, part_l = output, output, output  # the latter two are not touched when there is one segment
    if segments > 1:
        parts = query.new_empty(tokens, heads, segments, size, dtype=torch.float32)
        part_m, part_l = (query.new_empty(tokens, heads, segments, dtype=torch.float32) for _ in range(2))
    grid = (len(lengths), kv_heads, triton.cdiv(longest_query, queries) * segments)
    attend[grid](
        query, cache, table, starts, lengths, parts, part_m, part_l,
        scale, sinks, window,
        query.stride(0), query.stride(1), *cache.stride()[:3], table.stride(0),
        parts.stride(0), parts.stride(1), parts.stride(2) if segments > 1 else 0,
        heads,
        GROUP=group, QUERIES=queries, ROWS=rows, BLOCK=block, TILE=TILE,
        D=size, D_PAD=padded, SEGMENTS=segments,
    )  # fmt: skip
    if segments > 1:
        merge[(tokens, heads)](
            parts, part_m, part_l, output, *parts.stride()[:3], output.stride(0), output.stride(1), heads,
            D=size, D_PAD=padded, SEGMENTS=segments,
        )  # fmt: skip


def segments_for(longest_query: int, window: int, sinks: int, longest: int) -> int:
    """Return the number of segments that a batch is split into: only decodes are, as their few programs would leave a
    GPU idle."""
    return SEGMENTS if longest_query == 1 and min(longest, window + sinks) >= SPLIT_AT else 1
