"""vLLM's block pool with three functions that run once a block in fewer calls. They do the same as vLLM's own.

They are used only with the source of vLLM that they were written for (`SOURCES`), and only in the plain case: one group
of layers, one hash a block, no events, no metrics. vLLM's own functions run in all other cases.
"""

import hashlib
import inspect
from functools import cache
from typing import Any

from vllm.v1.core import block_pool as vllm_pool
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import KVCacheBlock, make_block_hash_with_group_id
from vllm.v1.request import Request

SOURCES = frozenset(
    {
        "4f21824e2a851e62abeb419d3b7e78fda566a86bf3144937e30f5f9be5e4a17b",  # 0.31.0
        "7ee1b5e942d01b2539575f4fb8df83e1a035c74ffaf6b8735e1610b1cd87b340",  # 0.32.0
        "2eeca9fa3ccbd335ffa6a4e752a485837478be7e1baa1ff4a86a97f938bcb476",  # 0.33.0
    }
)
"""SHA-256 of the vLLM sources that these functions were compared with. With another one replays take longer."""

_NOTHING: Any = b""
_SUFFIX: Any = make_block_hash_with_group_id(_NOTHING, 0)


@cache
def source_hash() -> str:
    """Return the SHA-256 of the source of vLLM's block pool and its blocks."""
    parts = vllm_pool, KVCacheBlock, make_block_hash_with_group_id
    return hashlib.sha256("".join(map(inspect.getsource, parts)).encode()).hexdigest()


def has_fast_pool() -> bool:
    """Return whether vLLM's source is known."""
    return source_hash() in SOURCES


def use_fast_pool(pool: BlockPool) -> None:
    """Make `pool` a `FastBlockPool`, if vLLM's source is known."""
    if type(pool) is BlockPool and has_fast_pool():
        pool.__class__ = FastBlockPool


class FastBlockPool(BlockPool):
    """Implements vLLM's BlockPool."""

    @property
    def _plain(self) -> bool:
        return not (
            self.enable_kv_cache_events
            or self.metrics_collector
            or self.cached_block_hashes_by_block
            or self._reuse_watchers
        )

    def get_cached_block(self, block_hash: Any, kv_cache_group_ids: list[int]) -> list[KVCacheBlock] | None:
        if kv_cache_group_ids != [0]:
            return super().get_cached_block(block_hash, kv_cache_group_ids)
        cached: Any = self.cached_block_hash_to_block._cache.get(block_hash + _SUFFIX)
        if cached is None:
            return None
        return [next(iter(cached.values())) if type(cached) is dict else cached]

    def get_new_blocks(self, num_blocks: int) -> list[KVCacheBlock]:
        if not self.enable_caching or not self._plain:
            return super().get_new_blocks(num_blocks)
        if num_blocks > self.free_block_queue.num_free_blocks:
            raise ValueError(f"Cannot get {num_blocks} free blocks from the pool")
        blocks = self.free_block_queue.popleft_n(num_blocks)
        cache = self.cached_block_hash_to_block
        for block in blocks:
            key = block._block_hash
            if key is not None:
                if cache._cache.get(key) is block:
                    del cache._cache[key]
                else:
                    cache.pop(key, block.block_id)
                block._block_hash = block._block_hash_num_tokens = None
            assert block.ref_cnt == 0
            block.ref_cnt = 1
        return blocks

    def cache_full_blocks(
        self,
        request: Request,
        blocks: list[KVCacheBlock],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_size: int,
        kv_cache_group_id: int,
        block_mask: list[bool] | None = None,
    ) -> None:
        first = num_cached_blocks
        hashes: Any = request.block_hashes
        if not kv_cache_group_id and block_mask is None and block_size == self.hash_block_size and self._plain:
            cache = self.cached_block_hash_to_block
            for first in range(num_cached_blocks, num_full_blocks):
                block = blocks[first]
                if block.is_null:
                    continue
                if block._block_hash is not None:
                    break  # it held a part of this content before
                key = hashes[first] + _SUFFIX
                cached = cache._cache.setdefault(key, block)
                if cached is not block:
                    if cache.contain(key, block.block_id):
                        continue
                    cache.insert(key, block)
                block._block_hash, block._block_hash_num_tokens = key, (first + 1) * block_size
            else:
                return
        super().cache_full_blocks(request, blocks, first, num_full_blocks, block_size, kv_cache_group_id, block_mask)
