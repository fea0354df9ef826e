"""The prefixes in a server's KV cache, by its events and by the requests sent there."""

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable

EXPECTED = 31_250
"""[config] blocks of a server that count as cached because a request with them was sent there: the capacity of the
approximate prefix scorer of the Gateway API Inference Extension (`lruCapacityPerServer`)."""


class PrefixIndex:
    """One server's cached blocks, by chained hashes. A set of them is a radix tree: a block's hash names the path to
    it, and the depth of a prompt is the number of its first blocks in the set.

    `expected`: the most blocks that count as cached without an event.
    """

    def __init__(self, expected: int = EXPECTED) -> None:
        self._capacity = expected
        self._stored: Counter[Hashable] = Counter()
        self._expected: OrderedDict[Hashable, None] = OrderedDict()

    def stored(self, hashes: Iterable[Hashable]) -> None:
        """Add blocks that the server reports as stored; one hash can have several."""
        for block_hash in hashes:
            self._stored[block_hash] += 1
            self._expected.pop(block_hash, None)

    def removed(self, hashes: Iterable[Hashable]) -> None:
        """Remove blocks that the server reports as evicted."""
        for block_hash in hashes:
            self._expected.pop(block_hash, None)
            if self._stored[block_hash] > 1:
                self._stored[block_hash] -= 1
            else:
                del self._stored[block_hash]

    def expect(self, hashes: Iterable[Hashable]) -> None:
        """Expect the blocks of a request that was sent to the server, before its server reports them (or never
        does)."""
        for block_hash in hashes:
            if block_hash not in self._stored:
                self._expected[block_hash] = None
                self._expected.move_to_end(block_hash)
        while len(self._expected) > self._capacity:
            self._expected.popitem(last=False)

    def clear(self) -> None:
        """Forget all blocks, as after the server's restart."""
        self._stored.clear()
        self._expected.clear()

    def depth(self, hashes: Iterable[Hashable]) -> int:
        """Return the number of a prompt's first blocks that are cached."""
        depth = 0
        for block_hash in hashes:
            if block_hash not in self._stored and block_hash not in self._expected:
                break
            depth += 1
        return depth

    def __len__(self) -> int:
        return len(self._stored) + len(self._expected)

    def __contains__(self, block: Hashable) -> bool:
        return block in self._stored or block in self._expected
