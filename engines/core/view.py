"""What a policy sees of a stage replica, read from its vLLM scheduler, in our loop and in stock vLLM alike."""

from collections.abc import Callable, Set
from typing import Any

from engines.core.policy import RequestView, StageView
from engines.core.request import StageRequest
from engines.core.step_cost import StepWork

ViewOf = Callable[[str, bool, int, int, int], RequestView]
"""Makes the view of a request: id, running, tokens, computed, blocks."""


def plain_view(
    request: StageRequest, now: float, running: bool, tokens: int, computed: int, blocks: int
) -> RequestView:
    """A request as the kernel knows it."""
    return RequestView(
        request.id,
        running,
        tokens,
        computed,
        blocks,
        request.arrive_s,
        request.due_s,
        request.request_class,
        request.priority,
    )


def stage_view(
    stage: str,
    now: float,
    scheduler: Any,
    view_of: ViewOf,
    step_s: Callable[[StepWork], float | None],
    left_out: Set[str],
    seats_left_out: int,
) -> StageView:
    """The view of `scheduler` (a `StageScheduler`) at `now` (s).

    `left_out`: ids that cannot make progress in this round, `seats_left_out` of which hold a seat. Left out besides:
    requests that wait for KV from the host, whose remaining blocks are spoken for, preloads, and sessions that wait for
    their next input.
    """
    loading = scheduler.loading
    if loading or scheduler.preloads.ids:
        left_out = left_out | loading | scheduler.preloads.ids
    if scheduler.num_waiting_for_streaming_input:
        left_out = left_out | scheduler.awaiting_input
    views = []
    for queue, running in ((scheduler.running, True), (scheduler.waiting_requests(), False)):
        for request in queue:
            request_id = request.request_id
            if request_id in left_out:
                continue
            views.append(
                view_of(
                    request_id,
                    running,
                    request.num_tokens + request.num_output_placeholders,
                    request.num_computed_tokens,
                    scheduler.blocks_held(request_id),
                )
            )
    return StageView(
        stage=stage,
        now=now,
        requests=views,
        token_budget=scheduler.max_num_scheduled_tokens,
        seat_budget=scheduler.max_num_active_reqs - seats_left_out,
        free_blocks=max(0, scheduler.free_blocks - scheduler.promised_blocks(loading)),
        allocatable_blocks=scheduler.allocatable_blocks,
        block_size=scheduler.block_size,
        step_s=step_s,
    )
