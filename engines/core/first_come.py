"""Counts the steps in which a policy's plan runs other requests than first come, first served would.

Both steps are computed from the same candidates by the same rules, a short form of vLLM's scheduler: running requests
come before waiting ones; each takes from the step's remaining tokens and the free blocks; a running request that lacks
blocks takes those of the last one. Where all requests fit, order does not matter and no step is computed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from engines.core.policy import Plan, RequestView, StageView

Cached = Callable[[Sequence[bytes]], int]
"""Tokens at the beginning of a prompt that are in the prefix cache, by the hashes of its blocks."""

_ready_s = attrgetter("ready_s")
NO_CAPS: Mapping[str, int] = {}


class OrderCount:
    """Counts the plans of one policy.

    `counters`: `planned_rounds`: rounds with requests to plan for; `order_mattered`: the planned rounds in which first
    come, first served would have run other requests, or given them other numbers of tokens.
    """

    def __init__(self, cached: Cached) -> None:
        self._planned = self._mattered = 0
        self._cached = cached

    @property
    def counters(self) -> Counter[str]:
        return Counter(planned_rounds=self._planned, order_mattered=self._mattered)

    def see(self, view: StageView[RequestView], plan: Plan) -> None:
        if view.requests:
            self._planned += 1
            self._mattered += matters(view, plan, self._cached)


def matters(view: StageView[RequestView], plan: Plan, cached: Cached) -> bool:
    """Return True if the step under `plan` differs from the first come, first served step of `view`."""
    requests, held = view.requests, plan.held
    new = sum([request.tokens - request.computed for request in requests])
    fits = (
        new <= view.token_budget
        and len(requests) <= view.slot_budget
        and new // view.block_size + len(requests) <= view.free_blocks
    )
    if plan.preempt:
        return True
    if fits and not plan.caps and (plan.step_budget is None or new <= plan.step_budget):
        return bool(held) and any([r.id in held and r.tokens > r.computed for r in requests])
    running, waiting = [], []
    for request in requests:
        (running if request.running else waiting).append(request)
    plain = not held and not plan.caps and plan.step_budget is None
    if plain and (not plan.order or (len(running) >= view.slot_budget and _all_run(running, view))):
        return False  # without a slot, vLLM looks at no waiting request
    if held and any([r.id in held and r.tokens > r.computed for r in running]) and _all_run(running, view):
        return True  # first come, first served would have run all of them
    waiting.sort(key=_ready_s)
    budget = view.token_budget
    if plan.step_budget is not None:
        budget = max(1, min(budget, plan.step_budget))
    slots = view.slot_budget - sum([request.id in held for request in running])
    planned = _step(*_planned(running, waiting, plan), view, budget, slots, plan.caps, cached)
    return planned != _step(running, waiting, view, view.token_budget, view.slot_budget, NO_CAPS, cached)


def _all_run(running: Sequence[RequestView], view: StageView[RequestView]) -> bool:
    new = sum([request.tokens - request.computed for request in running])
    return new <= view.token_budget and new // view.block_size + len(running) <= view.free_blocks


def _planned(
    running: Sequence[RequestView], waiting: Sequence[RequestView], plan: Plan
) -> tuple[Sequence[RequestView], Iterable[RequestView]]:
    running_by_id = {request.id: request for request in running if request.id not in plan.held}
    waiting_by_id = {request.id: request for request in waiting if request.id not in plan.held}
    order = plan.order
    first = [running_by_id.pop(id) for id in order if id in running_by_id]
    return [*first, *running_by_id.values()], _in_order(waiting_by_id, order)


def _in_order(by_id: dict[str, RequestView], order: Sequence[str]) -> Iterator[RequestView]:
    for request_id in order:
        if request_id in by_id:
            yield by_id.pop(request_id)
    yield from by_id.values()


def _step(
    running: Sequence[RequestView],
    waiting: Iterable[RequestView],
    view: StageView[RequestView],
    tokens: int,
    slots: int,
    caps: Mapping[str, int],
    cached: Cached,
) -> dict[str, int]:
    """Return the tokens of each request in vLLM's step of these requests, each group in this order."""
    given: dict[str, int] = {}
    running = list(running)
    free, size, place, preempted = view.free_blocks, view.block_size, 0, False
    while place < len(running) and tokens > 0:
        request = running[place]
        count = min(request.tokens - request.computed, tokens, caps.get(request.id, tokens))
        need = max(0, -(-(request.computed + count) // size) - request.blocks)
        while need > free and place < len(running):
            free += running.pop().blocks
            preempted = True
        if place == len(running):
            break
        place += 1
        if count > 0:
            given[request.id] = count
            tokens, free = tokens - count, free - need
    slots -= len(running)
    if preempted or tokens <= 0 or slots <= 0:
        return given
    for request in waiting:
        computed = request.computed
        if not computed and request.hashes:
            computed = min(cached(request.hashes), request.tokens - 1)
        count = min(request.tokens - computed, tokens, caps.get(request.id, tokens))
        need = max(0, -(-(computed + count) // size) - request.blocks)
        if need > free:
            break
        given[request.id] = count
        tokens, free, slots = tokens - count, free - need, slots - 1
        if tokens <= 0 or slots <= 0:
            break
    return given
