"""Management of a stage's KV beyond vLLM's LRU: eviction of idle blocks, and loads before the KV is asked for.

Nothing here knows vLLM, the cost model, the client or the trace (LiveServe section 5).
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from engines.core.device import Row
from engines.core.request import StageRequest

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


class KvStore(Protocol):
    """The KV pool and host tier of a stage replica, as a manager sees them. Blocks are counts, times s."""

    block_bytes: int
    bandwidth: float
    """Bytes/s from host to GPU."""

    def evict_by(self, index: EvictionIndex, mode: EvictionMode) -> None:
        """Let the pool take its victims from `index` (on), count the differences between LRU and it (log_only), or only
        keep it informed (off). Call it in `attach`, while the pool is untouched."""

    @property
    def allocatable_blocks(self) -> int: ...

    @property
    def empty_blocks(self) -> int:
        """Free blocks without content."""
        ...

    def missing(self, session: int) -> int:
        """Blocks of the session's known history that are in host memory and not on the GPU, in prefix order. Blocks on
        the GPU in front of them are no gap; the first block that is in neither ends the count."""
        ...

    def load(self, session: int, blocks: int) -> bool:
        """Start loading the next `blocks` missing ones in the background; False when it cannot start."""
        ...

    def cancel(self, session: int) -> None:
        """Give up a load under way: its blocks are dropped when they arrive."""

    def queued_s(self) -> float:
        """Seconds until the host-to-GPU copy engine is free."""
        ...


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


class KvTraffic(Protocol):
    """KV of one replica on its way to and from host memory (`host_kv`) or other replicas (`handed_kv`). Its loop and
    its table of requests drive it."""

    @property
    def busy(self) -> bool:
        """Return True while anything is under way, or kept for another replica."""
        ...

    @property
    def next_s(self) -> float | None:
        """Return the time of the next look if nobody wakes the loop (s)."""

    def runnable(self, requests: Mapping[str, StageRequest], held: frozenset[str], now: float) -> bool:
        """Return True if a round could do anything."""
        ...

    def begin(self, scheduled: Any, requests: Mapping[str, StageRequest], now: float) -> float:
        """Start the transfers that vLLM asked for in this round; returns when its work can begin (s)."""
        ...

    def end(self, scheduled: Any, withdrawn: frozenset[int], now: float) -> Any:
        """End the step; returns all that has arrived by `now`, for vLLM's scheduler, or None."""

    def take_arrived(self, arrived: bool, requests: Mapping[str, StageRequest], now: float) -> None:
        """Take in the arrivals that vLLM's scheduler knows of, if any."""

    def started(self, row: Row, request: StageRequest, now: float) -> None:
        """Note that the request runs for the first time."""

    def forget(self, request_id: str) -> None:
        """Forget an aborted request."""

    def drop(self, request_id: str) -> bool:
        """Drop the KV that is kept of a request, as nobody will ask for it; False if none is kept."""
        ...
