"""Management of a stage's KV beyond vLLM's LRU: eviction of idle blocks, and loads before the KV is asked for.

Nothing here knows the cost model, the client or the trace (LiveServe section 5).
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal, Protocol

EvictionMode = Literal["off", "log_only", "on"]


class EvictionIndex(Protocol):
    """Idle cached blocks by next use. Owners: sessions whose history contains the block -> its position there."""

    def add(self, block_id: int, owners: Mapping[int, int]) -> None:
        """Add a block that has become idle: nobody holds it and its content is known (hashed)."""

    def discard(self, block_id: int) -> None:
        """Remove a block that is in use again, or whose content was given away. An unknown block is no error."""

    def key(self, session: int, next_use_s: float | None) -> None:
        """Set the time when a session needs its blocks again (absolute s); None protects them from eviction."""

    def pop(self, count: int) -> list[int]:
        """Return at most `count` victims: largest next use first, within a session the highest position first.

        A block with several owners counts with the owner that needs it first.
        """
        ...

    def later_than(self, next_use_s: float) -> int:
        """Return the number of idle blocks whose next use is strictly later."""
        ...


class KvStore:
    """The KV pool and host tier of a stage replica, as a manager sees them: a `StageScheduler` and `HostTransfers`.
    Blocks are counts, times s, `bandwidth` is from host to GPU (bytes/s)."""

    def __init__(self, scheduler: Any, transfers: Any) -> None:
        self._scheduler = scheduler
        self._transfers = transfers
        self.block_bytes = transfers.block_bytes
        self.bandwidth = transfers.to_device.bandwidth

    def evict_by(self, index: EvictionIndex, mode: EvictionMode) -> None:
        """Let the pool take its victims from `index` (on), count the differences between LRU and it (log_only), or only
        keep it informed (off). Call it in `attach`, while the pool is untouched."""
        self._scheduler.evict_by(index, mode)

    @property
    def allocatable_blocks(self) -> int:
        return self._scheduler.allocatable_blocks

    @property
    def empty_blocks(self) -> int:
        """Free blocks without content."""
        return self._scheduler.empty_blocks

    def missing(self, session: int) -> int:
        """Blocks of the session's known history that are in host memory and not on the GPU, in prefix order. Blocks on
        the GPU in front of them are no gap; the first block that is in neither ends the count."""
        history = self._scheduler.histories.get(session)
        return 0 if history is None else self._scheduler.preloads.missing(history)

    def load(self, session: int, blocks: int) -> bool:
        """Start loading the next `blocks` missing ones in the background; False when it cannot start."""
        history = self._scheduler.histories.get(session)
        return history is not None and self._scheduler.preloads.start(session, history, blocks)

    def cancel(self, session: int) -> None:
        """Give up a load under way: its blocks are dropped when they arrive."""
        self._scheduler.preloads.cancel(session)

    def queued_s(self) -> float:
        """Seconds until the host-to-GPU copy engine is free."""
        return self._transfers.to_device.queued_s()


class KvManager(Protocol):
    """A stage replica's KV manager. The record keeps its `counters`."""

    counters: Counter[str]
    wake_s: float | None
    """The time of the next call of `act` if nothing happens, s; None: none."""

    def attach(self, store: KvStore) -> None:
        """Take over a replica's store, once, before anything is served."""

    def expect_turn(self, session: int, now: float) -> None:
        """Speech start or barge-in: the session's next turn is coming, and the store knows its history."""

    def cancel_expected_turn(self, session: int, now: float) -> None:
        """Take back that the session returns: the sound was no beginning of a turn."""

    def turn_arrived(self, session: int, now: float) -> None:
        """Note that the session's request has reached this stage and is about to be added."""

    def turn_started(self, session: int, now: float) -> None:
        """Note that the request's first step is scheduled: its protection ends."""

    def loaded(self, session: int, blocks: int, now: float) -> None:
        """Note that a background load has ended with `blocks` on the GPU."""

    def changed(self, view: Any, now: float) -> None:
        """Take in a change of a session, which may move its next use. `view`: the session as its library of systems
        shows it."""

    def forget(self, session: int) -> None:
        """Close the session: its next use is never."""

    def act(self, now: float, urgent_short: bool) -> None:
        """Start, wait for, expire and cancel loads. `urgent_short`: an urgent request cannot get blocks."""
