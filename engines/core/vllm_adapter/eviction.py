"""Evictions of the KV pool: counted, timed with real timers, and remembered while a reload would count as a short
cycle."""

import time
from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from typing import Any

from vllm.v1.core.kv_cache_utils import KVCacheBlock, make_block_hash_with_group_id

from engines.core.vllm_adapter import clock

SHORT_CYCLE_S = 5.0
"""A reload within this time counts as a wrong eviction (counter `evict_reload_within_5s`)."""

KEPT = 2**20
"""[chosen] newest timings that are kept at least: 8 MB. A replay has fewer; an endless server has more."""


class Evictions:
    """Watches the queue from which one pool takes its blocks.

    `seconds`: real time of each call that gave away content (evicting, and nothing else), the newest ones. `counters`:
    blocks whose content was given away, and how many of them came back within `SHORT_CYCLE_S`.
    """

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.seconds = array("d")
        self.total_s = 0.0
        # Content given away since the last look, with its time; older content by hash.
        self._given: deque[tuple[float, list[Any]]] = deque()
        self._given_s: OrderedDict[Any, float] = OrderedDict()

    def watch(self, queue: Any) -> None:
        """Count and time the blocks that `queue` (vLLM's FreeKVCacheBlockQueue) gives out from now on."""
        take = queue.popleft_n

        def popleft_n(n: int) -> list[KVCacheBlock]:
            begun = time.perf_counter()
            blocks = take(n)
            took_s = time.perf_counter() - begun
            given = [content for block in blocks if (content := block._block_hash) is not None]
            if given:
                self.seconds.append(took_s)
                if len(self.seconds) > 2 * KEPT:
                    del self.seconds[:KEPT]
                self.total_s += took_s
                self.remember(given)
            return blocks

        queue.popleft_n = popleft_n

    def reloaded(self, keys: Iterable[bytes]) -> None:
        """Count the blocks of these hashes (with vLLM's group suffix) that begin to load from the host."""
        now, given_s = clock.now(), self._given_s
        for at_s, contents in self._given:
            for content in contents:
                given_s[content] = at_s
                given_s.move_to_end(content)
        self._given.clear()
        while given_s and now - next(iter(given_s.values())) >= SHORT_CYCLE_S:
            given_s.popitem(last=False)
        if given_s:
            times = [given_s.pop(key, -SHORT_CYCLE_S) for key in keys]
            self.counters["evict_reload_within_5s"] += sum(now - at_s < SHORT_CYCLE_S for at_s in times)

    def remember(self, contents: list[Any]) -> None:
        """Note the content given away now; `reloaded` searches it block by block."""
        now, given = clock.now(), self._given
        self.counters["evict_blocks"] += len(contents)
        given.append((now, contents))
        while now - given[0][0] >= SHORT_CYCLE_S:
            given.popleft()


def drop_content(pool: Any, hashes: Iterable[Any]) -> int:
    """Take idle blocks with these hashes out of the prefix cache of `pool` (vLLM's BlockPool): they become empty and
    are given out first. Blocks in use stay. Returns their number."""
    dropped = []
    for block_hash in hashes:
        key = make_block_hash_with_group_id(block_hash, 0)
        while (block := pool.cached_block_hash_to_block.get_one_block(key)) is not None and not block.ref_cnt:
            pool.free_block_queue.remove(block)
            pool._maybe_evict_cached_block(block)
            dropped.append(block)
    pool.free_block_queue.prepend_n(dropped)
    return len(dropped)
