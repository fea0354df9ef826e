"""Whether a policy's plan gives a step to other requests than first come, first served would have given it to.

Both steps are worked out from the same candidates by the same rules, a short form of those of vLLM's scheduler: running
requests come before waiting ones, each takes what is left of the step's tokens and of the free blocks, and a running
request that lacks blocks takes those of the last one. Where everybody fits, no order matters and no step is worked out.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from engines.core.policy import Plan, RequestView, StageView

Cached = Callable[[Sequence[bytes]], int]
"""Tokens at the beginning of a prompt that are in the prefix cache, by the hashes of its blocks."""

NO_CAPS: Mapping[str, int] = {}


class OrderCount:
    """Counts the plans of one policy.

    `counters`: `planned_rounds`, in which there were requests to plan for; `order_mattered`, those of them in which
    first come, first served would have run other requests, or given them other numbers of tokens.
    """

    def __init__(self, cached: Cached) -> None:
        self.counters = Counter(planned_rounds=0, order_mattered=0)
        self._cached = cached

    def see(self, view: StageView[RequestView], plan: Plan) -> None:
        if view.requests:
            self.counters["planned_rounds"] += 1
            self.counters["order_mattered"] += matters(view, plan, self._cached)


def matters(view: StageView[RequestView], plan: Plan, cached: Cached) -> bool:
    """Whether the step under `plan` is another than first come, first served would make of `view`."""
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
    came = [request for request in requests if request.running]
    came += sorted([request for request in requests if not request.running], key=_ready_s)
    planned = [request for request in came if request.id not in held] if held else came
    if plan.order:
        rank = {request_id: place for place, request_id in enumerate(plan.order)}
        last = len(rank)
        planned = sorted(planned, key=lambda request: rank.get(request.id, last))
    if planned == came and not plan.caps and plan.step_budget is None:
        return False
    budget = view.token_budget
    if plan.step_budget is not None:
        budget = max(1, min(budget, plan.step_budget))
    slots = view.slot_budget - sum([request.running and request.id in held for request in came])
    return _step(planned, view, budget, slots, plan.caps, cached) != _step(
        came, view, view.token_budget, view.slot_budget, NO_CAPS, cached
    )


def _ready_s(request: RequestView) -> float:
    return request.ready_s


def _step(
    order: Iterable[RequestView],
    view: StageView[RequestView],
    tokens: int,
    slots: int,
    caps: Mapping[str, int],
    cached: Cached,
) -> dict[str, int]:
    """The tokens of each request in the step that vLLM makes of these requests, in this order."""
    given: dict[str, int] = {}
    order = list(order)
    running = [request for request in order if request.running]
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
    if preempted:
        return given
    slots -= len(running)
    for request in order:
        if tokens <= 0 or slots <= 0:
            break
        if request.running:
            continue
        computed = request.computed
        if not computed and request.hashes:
            computed = min(cached(request.hashes), request.tokens - 1)
        count = min(request.tokens - computed, tokens, caps.get(request.id, tokens))
        need = max(0, -(-(computed + count) // size) - request.blocks)
        if need > free:
            break
        given[request.id] = count
        tokens, free, slots = tokens - count, free - need, slots - 1
    return given
