"""The fast block pool equals vLLM's own."""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from vllm.v1.core.block_pool import BlockPool

from engines.core.vllm_adapter import block_pool
from engines.core.vllm_adapter.block_pool import FastBlockPool, use_fast_pool
from engines.core.vllm_adapter.requests import make_request

BLOCKS, SIZE = 12, 16
operation = st.tuples(st.sampled_from(["take", "cache", "touch", "free", "find"]), st.integers(0, 5), st.integers(0, 3))


REQUESTS = [make_request(str(content), [content] * 8 * SIZE, 1, 0.0, SIZE) for content in range(4)]
"""Requests of 8 full blocks each, of four contents."""


def pools(caching: bool = True, events: bool = False) -> tuple[BlockPool, BlockPool]:
    plain, fast = (BlockPool(BLOCKS, caching, SIZE, enable_kv_cache_events=events) for _ in range(2))
    use_fast_pool(fast)
    assert type(plain) is BlockPool and type(fast) is FastBlockPool
    return plain, fast


def state(pool: BlockPool) -> Any:
    """Everything that a pool knows."""
    cached = pool.cached_block_hash_to_block._cache
    return (
        [(b.block_id, b.ref_cnt, b.block_hash, b.block_hash_num_tokens) for b in pool.blocks],
        [block.block_id for block in pool.free_block_queue.get_all_free_blocks()],
        {key: [*found] if isinstance(found, dict) else [found.block_id] for key, found in cached.items()},
        str(pool.kv_event_queue),
    )


class Holder:
    """Holds blocks of one pool: (request, blocks, number of cached blocks)."""

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self.held: list[tuple[Any, list[Any], int]] = []

    def do(self, operation: str, number: int, content: int) -> Any:
        """Carry out one operation; returns the ids of the blocks that the pool gave."""
        pool, request = self.pool, REQUESTS[content]
        if operation == "take":
            try:
                blocks = pool.get_new_blocks(number)
            except ValueError as error:
                return str(error)
            self.held.append((request, blocks, 0))
            return [block.block_id for block in blocks]
        if operation in ("find", "touch"):
            found = pool.get_cached_block(request.block_hashes[number if operation == "find" else 0], [0])
            if found and operation == "touch":
                pool.touch(found)
                self.held.append((None, [*found], len(found)))
            return [block.block_id for block in found or ()]
        if not self.held:
            return None
        index = number % len(self.held)
        request, blocks, cached = self.held[index]
        if operation == "cache" and request is not None:
            until = min(len(blocks), cached + content)
            pool.cache_full_blocks(request, blocks, cached, until, SIZE, 0)
            self.held[index] = request, blocks, until
        if operation == "free":
            pool.free_blocks(reversed(self.held.pop(index)[1]))
        return None


@settings(deadline=None, max_examples=200)
@example([("take", 5, 0), ("take", 5, 0), ("take", 1, 0), ("take", 1, 0)], True, False).via("the last block")
@given(st.lists(operation, max_size=60), st.booleans(), st.booleans())
def test_the_fast_pool_equals_vllms_pool_after_any_operation(
    operations: list[tuple[str, int, int]], caching: bool, events: bool
):
    ours, theirs = map(Holder, pools(caching, events and caching))
    for each in operations if caching else [each for each in operations if each[0] != "cache"]:
        assert ours.do(*each) == theirs.do(*each)
        assert state(ours.pool) == state(theirs.pool)


def test_a_pool_of_unknown_source_stays_vllms_own(monkeypatch: Any):
    monkeypatch.setattr(block_pool, "SOURCES", frozenset())
    pool = BlockPool(BLOCKS, True, SIZE)
    use_fast_pool(pool)
    assert type(pool) is BlockPool
