"""Deferred submission: a request waits at the proxy, and is sorted anew, until its node is about to begin a batch.

What is handed over early can no longer be sorted or sent elsewhere, and would wait at the node as long. Section 5.1 of
OmniInfer describes it ("predicted upstream batch cycle"); its published code has none, so that the rule is ours.
"""

import math
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from engines.core.proxy.batch_times import BatchTimes
from engines.core.proxy.order import by_priority

LEAD_S = 0.005
"""[chosen] handed over so long before the batch under way should end: dispatch overhead and a tick."""

STARVED_S = 5.0
"""[chosen] who has waited so long is handed over whatever its node does."""

Key = TypeVar("Key")


class Held(NamedTuple, Generic[Key]):
    """A request that waits at the proxy. `tokens`: of its prompt; `since_s`: when it came."""

    key: Key
    tokens: int
    since_s: float


class PrefillQueue(Generic[Key]):
    """Requests that wait for a prefill node, of `nodes`.

    `choose(key)`: the node to which a request would go now, without counting it there; None: none may take it.
    `submitted(key, node)`: it goes there, so that the next one is chosen with it in mind. `room`: tokens of a batch,
    which what is handed over for the next one does not pass, unless it is a single prompt.
    """

    def __init__(
        self,
        nodes: int,
        choose: Callable[[Key], int | None],
        submitted: Callable[[Key, int], None],
        lead_s: float = LEAD_S,
        starved_s: float = STARVED_S,
        room: float = math.inf,
    ) -> None:
        self.times = [BatchTimes() for _ in range(nodes)]
        self._choose = choose
        self._submitted = submitted
        self._lead_s = lead_s
        self._starved_s = starved_s
        self._room = room
        self._held: dict[Key, Held[Key]] = {}
        self._next = [0] * nodes
        self._batch: list[tuple[float, int] | None] = [None] * nodes
        """When the batch under way began (s), and its size."""

    def __len__(self) -> int:
        return len(self._held)

    def add(self, key: Key, tokens: int, now: float) -> None:
        self._held[key] = Held(key, tokens, now)

    def discard(self, key: Key) -> None:
        """Its client has gone."""
        self._held.pop(key, None)

    def begun(self, node: int, size: int, now: float) -> None:
        """The node has begun a batch of so many requests."""
        self._batch[node] = (now, size)
        self._next[node] = 0

    def ended(self, node: int, now: float) -> None:
        """The node's batch is complete: how long it took is remembered, and corrects what is expected of the next."""
        batch, self._batch[node] = self._batch[node], None
        if batch is not None:
            begun_s, size = batch
            self.times[node].add(size, now - begun_s)

    def emptied(self, node: int) -> None:
        """Nobody waits for what the node had: no batch of it will end."""
        self._batch[node] = None
        self._next[node] = 0

    def free_s(self, node: int) -> float | None:
        """When the node should end its batch (s); None: it has none."""
        batch = self._batch[node]
        return None if batch is None else batch[0] + self.times[node].predict(batch[1])

    def due(self, now: float) -> list[tuple[Key, int]]:
        """Who is handed over now and where, in order; they are forgotten here."""
        out: list[tuple[Key, int]] = []
        taking = {node for node in range(len(self._batch)) if self._takes(node, now)}
        starving = sum(self._starves(each, now) for each in self._held.values())
        if not taking and not starving:
            return out
        held: Sequence[Held[Key]] = by_priority(
            self._held.values(), lambda each: each.tokens, lambda each: now - each.since_s
        )
        for each in held:
            starves = self._starves(each, now)
            if not starves and not taking:
                continue
            node = self._choose(each.key)
            if node is None:
                continue
            if not starves:
                if node not in taking:
                    continue
                if self._next[node] and self._next[node] + each.tokens > self._room:
                    taking.discard(node)
                    continue
            del self._held[each.key]
            self._next[node] += each.tokens
            self._submitted(each.key, node)
            out.append((each.key, node))
        return out

    def _starves(self, each: Held[Key], now: float) -> bool:
        return now >= each.since_s + self._starved_s

    def _takes(self, node: int, now: float) -> bool:
        free_s = self.free_s(node)
        return free_s is None or now >= free_s - self._lead_s

    def next_s(self, now: float) -> float | None:
        """When `due` has to be asked again although nothing has happened (s), later than `now`; None: it need not."""
        if not self._held:
            return None
        times = [each.since_s + self._starved_s for each in self._held.values()]
        times += [free_s - self._lead_s for i in range(len(self._batch)) if (free_s := self.free_s(i))]
        return min((at_s for at_s in times if at_s > now), default=None)
