"""Deferred submission: a request waits at the proxy, and is sorted anew, until an instance can take it.

A request that is handed over early can no longer be sorted or sent elsewhere, and would wait as long at its instance.
Section 5.1 of OmniInfer describes it ("predicted upstream batch cycle", "minimal impact on TTFT"); its published code
has none, so the rule is ours. Instances that are idle, or about to begin a batch with room in it, can take a waiting
request; they do if, by measured batch times, no other would have finished it sooner.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from engines.systems.omniinfer.proxy.score import by_priority

KEPT = 128
"""[code] durations that are remembered; the code keeps this number for every number of requests, and takes their
mean."""

SHORTEST_S, LONGEST_S = 0.010, 600.0
"""[code] a shorter or longer duration was no batch."""

EMPTY_S, TOKEN_S = 0.170, 0.050 / 3500
"""Seconds of an empty batch and of a token until enough batches have been measured. [code] 220 ms for one request and
50 ms for each further one; [paper] requests of 3,500 tokens on average."""

ENOUGH = 4
"""[chosen] batches that a line is fitted to."""


class Line(NamedTuple):
    """Seconds of an empty batch and of each token; `spread_s`: standard deviation of measured times around it."""

    empty_s: float
    token_s: float
    spread_s: float = 0.0


class BatchTimes:
    """Predicts the batch times of equal instances. Requests differ twentyfold in length, so their number alone does not
    predict a batch."""

    def __init__(self) -> None:
        self._measured: deque[tuple[int, float]] = deque(maxlen=KEPT)
        self._line: Line | None = Line(EMPTY_S, TOKEN_S)

    def add(self, tokens: int, seconds: float) -> None:
        if SHORTEST_S <= seconds <= LONGEST_S:
            self._measured.append((tokens, seconds))
            self._line = None

    def predict(self, tokens: int) -> float:
        line = self._latest()
        return line.empty_s + line.token_s * tokens

    @property
    def spread_s(self) -> float:
        """Return the error of a prediction (standard deviation, s)."""
        return self._latest().spread_s

    def _latest(self) -> Line:
        if self._line is None:
            self._line = self._fitted()
        return self._line

    def _fitted(self) -> Line:
        """Fit by least squares; if all batches were alike, or a longer one took less, use the mean for any size."""
        n = len(self._measured)
        mean_tokens = sum([tokens for tokens, _ in self._measured]) / n
        mean_s = sum([seconds for _, seconds in self._measured]) / n
        if n < ENOUGH:
            return Line(max(0.0, mean_s - TOKEN_S * mean_tokens), TOKEN_S)
        squares = sum([(tokens - mean_tokens) ** 2 for tokens, _ in self._measured])
        products = sum([(tokens - mean_tokens) * seconds for tokens, seconds in self._measured])
        token_s = max(0.0, products / squares) if squares else 0.0
        empty_s = mean_s - token_s * mean_tokens
        missed = sum([(seconds - empty_s - token_s * tokens) ** 2 for tokens, seconds in self._measured])
        return Line(empty_s, token_s, math.sqrt(missed / n))


LEAD_S = 0.005
"""[chosen] time before the expected end of the batch under way at which requests are handed over: dispatch overhead and
a tick."""

SPREADS = 3.0
"""[chosen] standard deviations by which a batch may end before or behind its prediction. An instance that gets nothing
in time begins without, with the rest of a prompt that did not fit, and wastes most of a batch."""

Key = TypeVar("Key")


class _Held(NamedTuple, Generic[Key]):
    key: Key
    tokens: int
    since_s: float


class _Batch(NamedTuple, Generic[Key]):
    begun_s: float
    tokens: int
    keys: set[Key]
    """Requests whose prompts the batch completes."""


class _Instance(Generic[Key]):
    """The state of one instance: its prompts handed over, and the times of its batches."""

    def __init__(self, times: BatchTimes) -> None:
        self.times = times
        self.batch: _Batch[Key] | None = None
        self.next: dict[Key, int] = {}
        """Handed over and not in the batch under way: tokens to be computed, in order."""

    @property
    def free_s(self) -> float | None:
        """Return the expected end of its batch (s); None: it has none."""
        batch = self.batch
        return None if batch is None else batch.begun_s + self.times.predict(batch.tokens)

    def opens_s(self) -> float | None:
        """Return the time from which it is about to begin its next batch; None: it has none under way."""
        free_s = self.free_s
        return None if free_s is None else free_s - SPREADS * self.times.spread_s - LEAD_S

    def done_s(self, tokens: int, now: float, room: float) -> float:
        """Return the time when `tokens` more tokens would be computed behind its present work (s), in as many batches
        as that takes. The end of an overdue batch is unknown: it counts as now."""
        free_s = now if self.free_s is None else max(now, self.free_s)
        batches = 1 if room == math.inf else -(-tokens // int(room))
        return free_s + self.times.predict(tokens) + (batches - 1) * self.times.predict(0)

    def takes(self, now: float, room: float) -> bool:
        """Return True if a request handed over now is computed next. An overdue instance is at work for an unknown
        time."""
        free_s, opens_s = self.free_s, self.opens_s()
        begins = free_s is None or opens_s is None or opens_s <= now <= free_s + (free_s - opens_s)
        return begins and sum(self.next.values()) < room

    def begin(self, now: float, room: float) -> list[Key]:
        """Begin its next batch in the order of hand-over, the last prompt in part if it is too long (vLLM's chunked
        prefill), the first one whole in any case; returns its requests."""
        tokens, keys, begun = 0, set[Key](), list[Key]()
        for key, prompt in list(self.next.items()):
            if tokens >= room:
                break
            begun.append(key)
            if tokens and tokens + prompt > room:
                self.next[key] = int(tokens + prompt - room)
                tokens = int(room)
                break
            del self.next[key]
            keys.add(key)
            tokens += prompt
        self.batch = _Batch(now, tokens, keys) if keys else None
        return begun


class PrefillQueue(Generic[Key]):
    """Requests that wait for one of `nodes` prefill instances.

    `tokens(key)`: the tokens that each instance would have to compute; `choose(key, among)`: the instance, of those
    that would have finished it first; nothing is counted. None: none of them may. `submit(key, node)`: sends it there.
    `begun(key)`: its batch begins, as far as is known. `room`: tokens of a batch; hand-overs for the next batch end
    with the prompt that fills it.
    """

    def __init__(
        self,
        nodes: int,
        tokens: Callable[[Key], Sequence[int]],
        choose: Callable[[Key, Sequence[int]], int | None],
        submit: Callable[[Key, int], None],
        begun: Callable[[Key], None] = lambda key: None,
        room: float = math.inf,
    ) -> None:
        times = BatchTimes()  # instances of a stage are alike
        self._instances: list[_Instance[Key]] = [_Instance(times) for _ in range(nodes)]
        self._tokens = tokens
        self._choose = choose
        self._submit = submit
        self._begun = begun
        self._room = room
        self._held: dict[Key, _Held[Key]] = {}
        self._at: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._held)

    def free_s(self, node: int) -> float | None:
        return self._instances[node].free_s

    def add(self, key: Key, tokens: int, now: float) -> None:
        """Add a request that has come, with a prompt of `tokens` tokens, at `now`."""
        self._held[key] = _Held(key, tokens, now)

    def answered(self, key: Key, now: float) -> None:
        """Note a request's first token: its batch is complete, its duration is remembered, and the next one begins with
        the requests handed over."""
        instance = self._instances[self._at.pop(key)]
        batch = instance.batch
        if batch is not None and (key in batch.keys or key in instance.next):
            if key in batch.keys:
                instance.times.add(batch.tokens, now - batch.begun_s)
            instance.next.pop(key, None)
            self._begin(instance, now)

    def discard(self, key: Key, now: float) -> None:
        """Drop a request whose client has gone. The end of a batch without any client is not seen."""
        self._held.pop(key, None)
        node = self._at.pop(key, None)
        if node is not None:
            instance = self._instances[node]
            instance.next.pop(key, None)
            if instance.batch is not None:
                instance.batch.keys.discard(key)
                if not instance.batch.keys:
                    self._begin(instance, now)

    def due(self, now: float) -> list[tuple[Key, int]]:
        """Return the requests to hand over now, and their nodes, in order; they are no longer held. A request that
        stays counts, for the requests behind it, at the node that would finish it first."""
        out: list[tuple[Key, int]] = []
        nodes = range(len(self._instances))
        taking = {i for i in nodes if self._takes(i, now)}
        if taking and self._held:
            held = by_priority(self._held.values(), lambda each: each.tokens, lambda each: now - each.since_s)
            ahead = [sum(request.next.values()) for request in self._instances]
            for request in held:
                if not taking:
                    break
                tokens = self._tokens(request.key)
                done_s = [
                    instance.done_s(ahead[i] + tokens[i], now, self._room) for i, instance in enumerate(self._instances)
                ]
                others_s = min([done_s[i] for i in nodes if i not in taking], default=math.inf)
                able = [i for i in sorted(taking) if done_s[i] <= others_s]
                node = self._choose(request.key, able) if able else None
                if node is None:
                    soonest = min(nodes, key=done_s.__getitem__)
                    ahead[soonest] += tokens[soonest]
                    continue
                del self._held[request.key]
                self._at[request.key] = node
                self._instances[node].next[request.key] = tokens[node]
                ahead[node] += tokens[node]
                self._submit(request.key, node)
                out.append((request.key, node))
                if not self._takes(node, now):
                    taking.remove(node)
        for instance in self._instances:
            if instance.batch is None and instance.next:
                self._begin(instance, now)
        return out

    def next_s(self, now: float) -> float | None:
        """Return the time of the next call of `due` if nothing happens (s), later than `now`; None: not needed."""
        if not self._held:
            return None
        opens = [instance.opens_s() for instance in self._instances]
        return min((at_s for at_s in opens if at_s is not None and at_s > now), default=None)

    def _takes(self, node: int, now: float) -> bool:
        return self._instances[node].takes(now, self._room)

    def _begin(self, instance: _Instance[Key], now: float) -> None:
        for key in instance.begin(now, self._room):
            self._begun(key)
