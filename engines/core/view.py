"""A policy's view of a stage replica, read from its vLLM scheduler, in our loop and in stock vLLM alike."""

from collections.abc import Callable, Mapping, Set
from typing import Any

from engines.core.policy import RequestView, StageView
from engines.core.request import StageRequest
from engines.core.step_cost import StepWork


def plain_view(request: StageRequest, now: float = 0.0) -> RequestView:
    """Return the policy's view of a request, the same at any time, without vLLM's counts."""
    return RequestView(
        request.id,
        request.arrive_s,
        request.due_s,
        request.slo,
        prompt_tokens=len(request.prompt),
        max_tokens=request.max_tokens,
        tenant=request.tenant,
        predicted_tokens=request.predicted_tokens,
    )


def stage_view(
    stage: str,
    now: float,
    scheduler: Any,
    requests: Mapping[str, Any],
    view_of: Callable[[Any, float], RequestView],
    step_s: Callable[[StepWork], float | None],
    left_out: Set[str],
    slots_left_out: int,
) -> StageView:
    """Return the view of `scheduler` (a `StageScheduler`) at `now` (s).

    `view_of`: the view at `now` of a request in `requests`, by id; the scheduler's counts are added to it. `left_out`:
    ids that cannot make progress in this round; `slots_left_out` of them hold a slot. Also left out: requests that wait
    for KV from the host, whose remaining blocks are reserved, preloads, and sessions that wait for their next input. A
    request whose KV has come holds the remaining blocks too.
    """
    loading = scheduler.loading
    if loading or scheduler.preloads.ids:
        left_out = left_out | loading | scheduler.preloads.ids
    if scheduler.num_waiting_for_streaming_input:
        left_out = left_out | scheduler.awaiting_input
    free = scheduler.free_blocks
    if loading:
        free = max(0, free - scheduler.promised_blocks(loading))
    views = []
    block_size = scheduler.block_size
    bypass = scheduler.bypass
    decodes = {} if bypass is None else bypass.decodes
    for request in scheduler.running:
        request_id = request.request_id
        if request_id in left_out:
            continue
        view = view_of(requests[request_id], now)
        views.append(view)
        view.running = True
        decode = decodes.get(request_id)
        if decode is not None:
            view.computed = context = decode.row.context
            view.tokens, view.blocks = context + 1, decode.blocks
            if view.tokens % block_size == 0 and bypass is not None:
                bypass.sync_tokens(request_id)  # its last token fills a block, which has a hash now
        else:
            view.tokens = request.num_tokens_with_spec + request.num_output_placeholders
            view.computed, view.blocks = request.num_computed_tokens, scheduler.blocks_held(request_id)
        view.hashes = request.block_hashes
    for request in scheduler.waiting_requests():
        request_id = request.request_id
        if request_id in left_out:
            continue
        view = view_of(requests[request_id], now)
        views.append(view)
        view.running, view.hashes = False, request.block_hashes
        view.tokens = request.num_tokens_with_spec + request.num_output_placeholders
        view.computed, view.blocks = request.num_computed_tokens, scheduler.blocks_held(request_id)
        if scheduler.comes_from_another(request):
            view.computed = view.tokens - 1
        elif view.computed == view.tokens:
            view.computed -= 1  # all of it came from the host, and vLLM computes its last token again
        if scheduler.waits_with_loaded(request):
            # vLLM lets no further load begin in the blocks that this one has still to fill.
            promised = min(free, scheduler.promised_blocks([request_id]))
            view.blocks += promised
            free -= promised
    return StageView(
        stage=stage,
        now=now,
        requests=views,
        token_budget=scheduler.max_num_scheduled_tokens,
        slot_budget=scheduler.max_num_active_reqs - slots_left_out,
        free_blocks=free,
        allocatable_blocks=scheduler.allocatable_blocks,
        block_size=block_size,
        step_s=step_s,
    )
