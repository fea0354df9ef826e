"""The ablation of the eviction index: the same victims, found by a scan over all idle blocks on every call.

LiveServe's "w/o index" (paper Table 1, "tail scanning"). One pass with a bounded heap: no slower than it has to be.
"""

import math
from collections.abc import Mapping
from heapq import nlargest


class TailScan:
    """`engines.core.kv_manager.EvictionIndex` without an order of its own: O(idle blocks) for each call."""

    def __init__(self) -> None:
        self._alone: dict[int, tuple[int, int]] = {}
        self._shared: dict[int, dict[int, int]] = {}
        self._next_use: dict[int, float] = {}

    def __len__(self) -> int:
        """Idle blocks with a known owner."""
        return len(self._alone) + len(self._shared)

    def add(self, block_id: int, owners: Mapping[int, int]) -> None:
        self.discard(block_id)
        if len(owners) == 1:
            ((session, position),) = owners.items()
            self._alone[block_id] = session, position
        elif owners:
            self._shared[block_id] = dict(owners)

    def discard(self, block_id: int) -> None:
        if self._alone.pop(block_id, None) is None:
            self._shared.pop(block_id, None)

    def key(self, session: int, next_use_s: float | None) -> None:
        if next_use_s is None:
            self._next_use.pop(session, None)
        else:
            self._next_use[session] = next_use_s

    def pop(self, count: int) -> list[int]:
        next_use = self._next_use
        candidates = [
            (next_use[session], session, position, -block_id)
            for block_id, (session, position) in self._alone.items()
            if session in next_use
        ]
        for block_id, owners in self._shared.items():
            needed, session = self._first(owners)
            if needed > -math.inf:
                candidates.append((needed, session, owners[session], -block_id))
        victims = [-negative for *_, negative in nlargest(count, candidates)]
        for block_id in victims:
            self.discard(block_id)
        return victims

    def later_than(self, next_use_s: float) -> int:
        next_use = self._next_use
        alone = sum(next_use.get(session, -math.inf) > next_use_s for session, _ in self._alone.values())
        return alone + sum(self._first(owners)[0] > next_use_s for owners in self._shared.values())

    def _first(self, owners: Mapping[int, int]) -> tuple[float, int]:
        """The owner that needs the block first, with its next use; -inf of one that is protected or unknown."""
        return min((self._next_use.get(session, -math.inf), session) for session in owners)
