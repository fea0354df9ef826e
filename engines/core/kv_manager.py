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
        """A block has become idle: nobody holds it and its content is known (hashed)."""
        ...

    def discard(self, block_id: int) -> None:
        """A block was taken up again, or its content was given away; one that is not here is no error."""
        ...

    def key(self, session: int, next_use_s: float | None) -> None:
        """Set when a session needs its blocks again (absolute s); None protects them: never a victim."""
        ...

    def pop(self, count: int) -> list[int]:
        """At most `count` victims: largest next use first, within a session the highest position first.

        A block with several owners counts with the one that needs it first.
        """
        ...

    def later_than(self, next_use_s: float) -> int:
        """Idle blocks whose next use is strictly later."""
        ...


class KvStore(Protocol):
    """The KV pool and host tier of a stage replica, as a manager sees them. Blocks are counts, times s."""

    block_bytes: int
    bandwidth: float
    """Bytes/s from host to GPU."""

    def evict_by(self, index: EvictionIndex, mode: EvictionMode) -> None:
        """Let the pool take its victims from `index` (on), count where LRU and it differ (log_only), or only keep it
        informed (off). To be called in `attach`, while the pool is untouched."""
        ...

    @property
    def allocatable_blocks(self) -> int: ...

    @property
    def empty_blocks(self) -> int:
        """Free blocks without content."""
        ...

    def missing(self, session: int) -> int:
        """Blocks of the session's known history that are in host memory and not on the GPU, in prefix order: what
        stands on the GPU first is no gap, the first block that is in neither ends it."""
        ...

    def load(self, session: int, blocks: int) -> bool:
        """Start loading the next `blocks` missing ones in the background; False when it cannot start."""
        ...

    def cancel(self, session: int) -> None:
        """Give up a load under way: what comes back is dropped."""
        ...

    def queued_s(self) -> float:
        """Seconds until the host-to-GPU copy engine is free."""
        ...


class KvManager(Protocol):
    """A stage replica's KV manager. `counters` go into the record."""

    counters: Counter[str]
    wake_s: float | None
    """When `act` wants to run again although nothing happens, s."""

    def attach(self, store: KvStore) -> None:
        """Take over a replica's store, once, before anything is served."""
        ...

    def expect_turn(self, session: int, now: float) -> None:
        """Speech start or barge-in: the session's next turn is coming, and the store knows its history."""
        ...

    def cancel_expected_turn(self, session: int, now: float) -> None:
        """Take back that the session returns: the sound that had been taken for the beginning of its turn was no
        turn."""
        ...

    def turn_arrived(self, session: int, now: float) -> None:
        """The session's request has reached this stage and is about to be added."""
        ...

    def turn_started(self, session: int, now: float) -> None:
        """Its first step is scheduled: protection ends."""
        ...

    def loaded(self, session: int, blocks: int, now: float) -> None:
        """A background load has ended with `blocks` on the GPU."""
        ...

    def changed(self, view: Any, now: float) -> None:
        """Take in a change of a session. `view`: the session as its library of systems shows it. Its next use may have
        moved."""
        ...

    def forget(self, session: int) -> None:
        """The session has closed: its next use is never."""
        ...

    def act(self, now: float, urgent_short: bool) -> None:
        """Start, wait for, expire and cancel loads. `urgent_short`: an urgent request cannot get blocks."""
        ...


class KvTraffic(Protocol):
    """KV of one replica on its way to and from elsewhere, host memory (`host_kv`) or other replicas (`handed_kv`), as
    its loop and its table of requests drive them."""

    @property
    def busy(self) -> bool:
        """Whether anything is under way, or kept for somebody."""
        ...

    @property
    def next_s(self) -> float | None:
        """When to look again although nobody has woken the loop (s)."""
        ...

    def runnable(self, requests: Mapping[str, StageRequest], held: frozenset[str], now: float) -> bool:
        """Whether a round could do anything."""
        ...

    def begin(self, scheduled: Any, requests: Mapping[str, StageRequest], now: float) -> float:
        """Start what vLLM has asked for in this round; returns when its work can begin (s)."""
        ...

    def end(self, scheduled: Any, withdrawn: frozenset[int], now: float) -> Any:
        """The step has ended; returns what has arrived by `now`, for vLLM's scheduler, or None."""
        ...

    def take_arrived(self, arrived: bool, requests: Mapping[str, StageRequest], now: float) -> None:
        """vLLM's scheduler knows what has arrived, if anything has."""
        ...

    def started(self, row: Row, request: StageRequest, now: float) -> None:
        """The request runs for the first time."""
        ...

    def forget(self, request_id: str) -> None:
        """The request was aborted here."""
        ...

    def drop(self, request_id: str) -> bool:
        """Nobody will ask for the KV that is kept of a request; False where none is."""
        ...
