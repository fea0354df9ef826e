"""vLLM's queue of free blocks with an eviction index, which names the next blocks to give out.

BlockPool takes all its victims from `free_block_queue`; the pool itself stays stock (LiveServe sections 5.1 and 6).
"""

from collections import Counter
from collections.abc import Mapping, MutableMapping, Sequence
from itertools import islice
from typing import Any

from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue, KVCacheBlock

from engines.core.kv_manager import EvictionIndex, EvictionMode


class NextUseQueue(FreeKVCacheBlockQueue):
    """Free blocks: empty ones first, then the index's victims, then in vLLM's own order (least recently used).

    `owners`: block -> {session: position in its history}, which the scheduler fills before it frees blocks; blocks
    given out leave it. `mode` on: the index decides. log_only: vLLM's order decides, and the index's other choices are
    counted. off: vLLM's order decides, and the index is only kept up to date.

    `counters`: `lru_fallback_allocs`, allocations for which the index had too few victims, and `lru_fallback_blocks` in
    them; `log_victims`, and `log_disagreements`, the victims that the index would have kept.
    """

    def __init__(
        self,
        blocks: list[KVCacheBlock],
        index: EvictionIndex,
        owners: MutableMapping[int, Mapping[int, int]],
        mode: EvictionMode = "on",
    ) -> None:
        super().__init__(blocks)
        self.index = index
        self.owners = owners
        self.mode = mode
        self.counters: Counter[str] = Counter()
        self._by_id = {block.block_id: block for block in blocks}
        self._cached: set[int] = set()
        self._enter(blocks)

    @property
    def empty_blocks(self) -> int:
        return self.num_free_blocks - len(self._cached)

    def popleft(self) -> KVCacheBlock:
        """Take the next block; ValueError when none is free."""
        if not self.num_free_blocks:
            raise ValueError("No free blocks available")
        return self.popleft_n(1)[0]

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        """Take the next `n` blocks; at least `n` must be free."""
        assert n <= self.num_free_blocks
        empty = sum(1 for _ in islice(self._leading_empty(), n))
        if empty == n:
            blocks = super().popleft_n(n)
        elif self.mode == "on":
            blocks = self._by_next_use(empty, n - empty)
        else:
            blocks = self._by_last_use(n - empty, n)
        for block in blocks:
            self._leave(block)
            self.owners.pop(block.block_id, None)
        return blocks

    def remove(self, block: KVCacheBlock) -> None:
        super().remove(block)
        self._leave(block)

    def append(self, block: KVCacheBlock) -> None:
        super().append(block)
        self._enter([block])

    def append_n(self, blocks: list[KVCacheBlock]) -> None:
        super().append_n(blocks)
        self._enter(blocks)

    def prepend_n(self, blocks: list[KVCacheBlock]) -> None:
        super().prepend_n(blocks)
        self._enter(blocks)

    def _leading_empty(self) -> Any:
        """Yield the empty blocks at the front, where vLLM keeps them."""
        for block in self.iter_blocks_after(None):
            if block.block_hash is not None:
                return
            yield block

    def _by_next_use(self, empty: int, count: int) -> list[KVCacheBlock]:
        blocks = super().popleft_n(empty)
        victims = [self._by_id[block_id] for block_id in self.index.pop(count)]
        for block in victims:
            super().remove(block)
        fallback = super().popleft_n(count - len(victims))
        if fallback:
            self.counters["lru_fallback_allocs"] += 1
            self.counters["lru_fallback_blocks"] += len(fallback)
        return [*blocks, *victims, *fallback]

    def _by_last_use(self, victims: int, n: int) -> list[KVCacheBlock]:
        """Take `n` blocks in vLLM's order of last use. The index's own choices go back into it."""
        chosen = self.index.pop(victims) if self.mode == "log_only" else []
        blocks = super().popleft_n(n)
        given = {block.block_id for block in blocks if block.block_hash is not None}
        for block_id in chosen:
            if block_id not in given:
                self.index.add(block_id, self.owners[block_id])
        if self.mode == "log_only":
            self.counters["log_victims"] += len(given)
            self.counters["log_disagreements"] += len(given.difference(chosen))
        return blocks

    def _enter(self, blocks: Sequence[KVCacheBlock]) -> None:
        for block in blocks:
            if block.block_hash is not None:
                self._cached.add(block.block_id)
                self.index.add(block.block_id, self.owners.get(block.block_id, {}))

    def _leave(self, block: KVCacheBlock) -> None:
        if block.block_id in self._cached:
            self._cached.remove(block.block_id)
            self.index.discard(block.block_id)


def install(
    pool: Any, index: EvictionIndex, owners: MutableMapping[int, Mapping[int, int]], mode: EvictionMode = "on"
) -> NextUseQueue:
    """Let `pool`, a BlockPool that has given out nothing yet, take its blocks from a queue with this index."""
    free = pool.free_block_queue.get_all_free_blocks()
    assert len(free) == pool.num_gpu_blocks - 1, "all blocks but the null block"
    queue = pool.free_block_queue = NextUseQueue(free, index, owners, mode)
    return queue
