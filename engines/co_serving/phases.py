"""The two phases of filling a step: online requests, for which others give blocks back, then offline ones."""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from engines.core.policy import RequestView, StageView


class StepTime(Protocol):
    """The predicted time of a step that is being put together, against its limit."""

    @property
    def left_s(self) -> float:
        """Seconds until the limit; below 0: it is exceeded."""
        ...

    def most(self, request: RequestView, need: int) -> int:
        """Return the further tokens, at most `need`, that this request can take; 0: none."""
        ...

    def add(self, request: RequestView, tokens: int) -> None:
        """Add the request's tokens."""


class Step:
    """A step being filled: its time, tokens, slots and blocks. `time`: None: of any length; `by_chunk`: a waiting
    request is admitted when its first chunk fits into the pool, else when all of its prompt does."""

    def __init__(self, view: StageView, time: StepTime | None, tokens: int, by_chunk: bool) -> None:
        self.by_chunk = by_chunk
        self.time = time
        self.tokens = min(tokens, view.token_budget)
        self.free = view.free_blocks
        self.slots = view.slot_budget - sum([request.running for request in view.requests])
        self.size = view.block_size
        self.given: dict[str, int] = {}

    @property
    def has_time(self) -> bool:
        return self.time is None or self.time.left_s > 0.0

    def most(self, request: RequestView) -> int:
        """Return the tokens that the request can take by time and budget."""
        need = min(request.new, self.tokens)
        return need if self.time is None or not need else self.time.most(request, need)

    def blocks(self, request: RequestView, tokens: int) -> int:
        """Return the KV blocks that the request needs besides its own. A waiting one may have to find room for all of
        its prompt."""
        until = request.computed + tokens if request.running or self.by_chunk else request.tokens
        return max(0, -(-until // self.size) - request.blocks)

    def within(self, request: RequestView, tokens: int, free: int) -> int:
        """Return the tokens, at most `tokens`, for which `free` blocks suffice."""
        if request.running or self.by_chunk:
            room = (request.blocks + max(0, free)) * self.size - request.computed
            return max(0, min(tokens, room))  # KV from another replica has no block yet
        return tokens if self.blocks(request, tokens) <= free else 0

    def add(self, request: RequestView, tokens: int) -> None:
        self.given[request.id] = tokens
        self.tokens -= tokens
        self.free -= self.blocks(request, tokens)
        self.slots -= not request.running
        if self.time is not None:
            self.time.add(request, tokens)

    def take_back(self, victim: RequestView) -> None:
        self.free += victim.blocks
        self.slots += victim.running


COUNTED = ("slo_limited", "reclaimed", "online_preempted", "stuck")
"""Online prompts that the time limit cut or put off (slo_limited); offline requests preempted for online ones
(reclaimed) and for other offline ones (stuck), online ones for earlier ones (online_preempted)."""


def add_online(
    step: Step, online: Sequence[RequestView], offline: Sequence[RequestView], counters: Counter[str]
) -> dict[str, None]:
    """Fill phase 1, in the order of `online`. Returns the requests that have to give blocks back, in this order:
    offline requests for online ones, then the latest online request for one that runs, or that is the first."""
    victims: dict[str, None] = {}
    holders = sorted((request for request in offline if request.blocks), key=arrival)
    later = sorted((request for request in online if request.blocks), key=arrival)
    for request in online:
        if request.id in victims:
            continue
        tokens = step.most(request)
        if tokens < min(request.new, step.tokens):
            counters["slo_limited"] += 1
        if not tokens and step.tokens and (decodes(request) or not step.given):
            # Waiting makes no token of an answered request cheaper, and one request has to go on.
            tokens = min(request.new, step.size, step.tokens)
        if not tokens:
            break
        while step.blocks(request, tokens) > step.free or (not request.running and step.slots < 1):
            if holders:
                victim = holders.pop()
                counters["reclaimed"] += 1
            elif (
                (request.running or not step.given)  # the returned KV of a waiting request may be all of it
                and later
                and later[-1] is not request
                and later[-1].id not in step.given
            ):
                victim = later.pop()
                counters["online_preempted"] += 1
            else:
                break
            step.take_back(victim)
            victims[victim.id] = None
        tokens = step.within(request, tokens, step.free)
        if request.running and not tokens:
            continue  # it lacks a block, others may not
        if not tokens or (not request.running and step.slots < 1):
            break
        step.add(request, tokens)
    return victims


def add_offline(step: Step, offline: Sequence[RequestView], reserve: int, counters: Counter[str]) -> dict[str, None]:
    """Fill phase 2, in the order of `offline`: they take the remaining budget, and leave `reserve` blocks free.

    Returns the requests that have to give blocks back because otherwise none could go on.
    """
    victims: dict[str, None] = {}
    remaining = list(offline)
    _fill(step, remaining, reserve)
    while not step.given and remaining:
        # Nobody can go on without blocks that are kept free, or that another one holds.
        _fill(step, remaining, 0)
        holders = [request for request in remaining if request.blocks]
        if step.given or not holders:
            break
        victim = max(holders, key=arrival)
        counters["stuck"] += 1
        step.take_back(victim)
        victims[victim.id] = None
        remaining.remove(victim)
    return victims


def _fill(step: Step, offline: Sequence[RequestView], reserve: int) -> None:
    """Fill the step without taking another request's blocks."""
    for request in offline:
        if request.id in step.given:
            continue
        tokens = step.within(request, step.most(request), step.free - reserve)
        if not tokens or (not request.running and step.slots < 1):
            if request.running and step.tokens and step.has_time:
                continue  # it lacks a block, others may not
            break
        step.add(request, tokens)


def decodes(request: RequestView) -> bool:
    return request.running and request.new == 1


def online_order(request: RequestView) -> tuple[int, float, str]:
    """Return the sort key: decodes, then prompts that have begun, then waiting requests."""
    return 0 if decodes(request) else 1 if request.running else 2, request.ready_s, request.id


def arrival(request: RequestView) -> tuple[float, str]:
    return request.ready_s, request.id
