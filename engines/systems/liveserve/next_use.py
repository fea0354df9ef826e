"""The eviction index: idle cached blocks by the predicted next use of the session that needs them first.

LiveServe's "indexed candidate heap" (paper sections 5.1 and 6). One heap orders sessions by absolute next use, which
does not change while time passes, and each session has a heap of its idle blocks by position. An eviction costs O(log
sessions) for each session it begins and O(log blocks of the session) for each block, whatever the size of the pool.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, nlargest

SLACK = 64
"""[chosen] outdated entries, besides as many as it has valid ones, at which a heap is built anew."""

REMEMBERED = 4096
"""[chosen] sessions without another use that are kept although they have no idle block. An endless server must forget
them; their last requests are long over when this number of others has closed."""


@dataclass(slots=True, eq=False)
class _Session:
    """`alone`: idle blocks that only this session owns; `idle`: those kept in `stack`, shared ones included.

    `stack`: (-position, block), outdated entries among them. `version` counts changes of `next_use`; `queued`:
    the heap of sessions has an entry of this version.
    """

    number: int
    next_use: float | None = None
    version: int = 0
    queued: bool = False
    alone: int = 0
    idle: int = 0
    stack: list[tuple[int, int]] = field(default_factory=list)

    @property
    def rank(self) -> tuple[float, int]:
        """Rank sessions by next use: a protected session, or one with an unknown next use, needs its blocks at once."""
        return (-math.inf if self.next_use is None else self.next_use, self.number)


class NextUseIndex:
    """`engines.core.kv_manager.EvictionIndex` on heaps.

    A shared block is kept with one of its owners. It moves on when it is looked at and another owner needs it first.
    That is soon enough: its keeper never needs it earlier than its first user. Sessions without a next use, protected
    or unknown, never lose a block through the index. Equal next uses: the higher number first.
    """

    def __init__(self) -> None:
        self._sessions: dict[int, _Session] = {}
        self._with_blocks: dict[int, _Session] = {}
        self._order: list[tuple[float, int, int]] = []
        self._kept: dict[int, tuple[int, int]] = {}
        self._shared: dict[int, dict[int, int]] = {}
        self._closed: deque[int] = deque()
        self._forgotten = -1

    def __len__(self) -> int:
        """Return the number of idle blocks with a known owner."""
        return len(self._kept)

    def add(self, block_id: int, owners: Mapping[int, int]) -> None:
        """Add a block that has become idle. A block without owners is left to LRU."""
        self.discard(block_id)
        if len(owners) == 1:
            ((number, position),) = owners.items()
            session = self._session(number)
            session.alone += 1
            if session.alone == 1:
                self._with_blocks[number] = session
        elif owners:
            session = self._first(owners)
            position = owners[session.number]
            self._shared[block_id] = dict(owners)
        else:
            return
        self._keep(block_id, session, position)

    def discard(self, block_id: int) -> None:
        """Remove a block that is in use again or was given away; its entry in the stack is outdated from now on."""
        kept = self._kept.pop(block_id, None)
        if kept is None:
            return
        session = self._sessions[kept[0]]
        session.idle -= 1
        if self._shared.pop(block_id, None) is None:
            session.alone -= 1
            if not session.alone:
                del self._with_blocks[session.number]

    def key(self, session: int, next_use_s: float | None) -> None:
        """Set when the session needs its blocks again, s; inf: never; None: protected."""
        state = self._session(session)
        if next_use_s == state.next_use:
            return
        state.next_use, state.queued = next_use_s, False
        state.version += 1
        if state.idle:
            self._queue(state)
        if next_use_s == math.inf:
            self._closed.append(session)
            for _ in range(2):  # for one that comes two are looked at, as some have idle blocks yet
                if len(self._closed) > REMEMBERED:
                    self._forget(self._closed.popleft())

    def pop(self, count: int) -> list[int]:
        """Take out at most `count` victims: latest next use first, within a session the highest position first."""
        victims: list[int] = []
        while len(victims) < count:
            session = self._latest()
            if session is None:
                break
            stack = session.stack
            while stack and len(victims) < count:
                negative, block_id = heappop(stack)
                if self._kept.get(block_id) != (session.number, -negative):
                    continue
                owners = self._shared.get(block_id)
                if owners is not None and (first := self._first(owners)) is not session:
                    session.idle -= 1
                    self._keep(block_id, first, owners[first.number])
                    continue
                self.discard(block_id)
                victims.append(block_id)
        return victims

    def later_than(self, next_use_s: float) -> int:
        """Return the number of idle blocks whose next use is strictly later; looks at sessions and at shared blocks."""
        after = (next_use_s, math.inf)
        alone = sum(session.alone for session in self._with_blocks.values() if session.rank > after)
        return alone + sum(self._first(owners).rank > after for owners in self._shared.values())

    def _session(self, number: int) -> _Session:
        session = self._sessions.get(number)
        if session is None:
            # A block may still name an owner that was forgotten, and that has no use for it.
            next_use = math.inf if number <= self._forgotten else None
            session = self._sessions[number] = _Session(number, next_use)
        return session

    def _forget(self, number: int) -> None:
        session = self._sessions.get(number)
        if session is None or session.next_use != math.inf:
            return
        if session.idle:
            self._closed.append(number)
            return
        del self._sessions[number]
        self._forgotten = max(self._forgotten, number)

    def _first(self, owners: Mapping[int, int]) -> _Session:
        return min((self._session(number) for number in owners), key=lambda session: session.rank)

    def _keep(self, block_id: int, session: _Session, position: int) -> None:
        self._kept[block_id] = (session.number, position)
        session.idle += 1
        heappush(session.stack, (-position, block_id))
        if len(session.stack) > 2 * session.idle + SLACK:
            valid = {e for e in session.stack if self._kept.get(e[1]) == (session.number, -e[0])}
            session.stack = list(valid)
            heapify(session.stack)
        if not session.queued:
            self._queue(session)

    def _queue(self, session: _Session) -> None:
        if session.next_use is None:
            return
        heappush(self._order, (-session.next_use, -session.number, session.version))
        session.queued = True
        if len(self._order) > 2 * len(self._sessions) + SLACK:
            self._order = [entry for entry in self._order if self._is_newest(entry)]
            heapify(self._order)

    def _is_newest(self, entry: tuple[float, int, int]) -> bool:
        """Return True if an entry of the heap of sessions is up to date."""
        session = self._sessions.get(-entry[1])
        return session is not None and session.version == entry[2]

    def _latest(self) -> _Session | None:
        """Return the session with idle blocks whose next use is the latest."""
        while self._order:
            entry = self._order[0]
            if self._is_newest(entry):
                session = self._sessions[-entry[1]]
                if session.idle:
                    return session
                session.queued = False
            heappop(self._order)
        return None


class TailScan:
    """The ablation of the index, LiveServe's "w/o index" (paper Table 1, "tail scanning"): the same victims, found by a
    scan over all idle blocks on every call, in one pass with a bounded heap: no slower than it has to be.

    An `engines.core.kv_manager.EvictionIndex` without an order of its own: O(idle blocks) for each call.
    """

    def __init__(self) -> None:
        self._alone: dict[int, tuple[int, int]] = {}
        self._shared: dict[int, dict[int, int]] = {}
        self._next_use: dict[int, float] = {}

    def __len__(self) -> int:
        """Return the number of idle blocks with a known owner."""
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
        """Return the owner that needs the block first, with its next use; -inf for a protected or unknown one."""
        return min((self._next_use.get(session, -math.inf), session) for session in owners)
