"""The rounds of a scheduler: the rows of a step go in, then the tokens sampled come out."""

from collections.abc import Iterable, Sequence
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput

from engines.core.device import NO_ROWS, Row
from engines.core.policy import STOCK, Plan
from engines.core.together import Told
from engines.core.vllm_adapter.scheduling import StageScheduler


def rows_of(scheduler: Scheduler, output: SchedulerOutput) -> list[Row]:
    """Return the rows of a scheduled step. Call it right after `schedule`, which has advanced the counters."""
    requests, rows = scheduler.requests, []
    for request_id, tokens in output.num_scheduled_tokens.items():
        request = requests[request_id]
        computed = request.num_computed_tokens
        rows.append(Row(request_id, tokens, computed - tokens, computed >= request.num_tokens))
    return rows


def passed_over(scheduler: Scheduler, plan: Plan, rows: Sequence[Row]) -> bool:
    """Whether a request that the plan let run did not, though it waits for nothing."""
    served = {row.request_id for row in rows}
    left = [scheduler.requests[id] for id in plan.order if id not in served]
    return any(request not in scheduler.deferred_waiting for request in left)


def dropped(rows: Sequence[Row], sampled: Sequence[list[int] | None]) -> list[str]:
    """Requests that an interruption took out of the step."""
    return [row.request_id for row, ids in zip(rows, sampled, strict=True) if ids is None]


Produced = tuple[str, list[int], bool]
"""Request id, its new token ids, and whether it has finished."""


class Rounds:
    """The rounds of one scheduler: what a step consists of, and what it has produced.

    `decodes`: requests of which vLLM does not know all (`plain_decode.Decode`), by id. `quiet_rows`: of the next step
    or the one under way, beside those that `schedule` returns.
    """

    def __init__(self, scheduler: StageScheduler) -> None:
        self.scheduler = scheduler
        self.decodes: dict[str, Any] = {}
        self.quiet_rows = NO_ROWS
        scheduler.caller = self

    def settle(self, request_ids: Iterable[str]) -> None:
        """Let vLLM know all of these requests."""

    def fill(self) -> None:
        """Let vLLM know all blocks that are full."""

    def catch_up(self, request_id: str) -> None:
        """Bring the counts of a request up to what it has made."""

    def look_at(
        self, request_ids: Iterable[str], rows: Sequence[Row], sampled: Sequence[list[int] | None]
    ) -> tuple[Sequence[Row], Sequence[list[int] | None]]:
        """The rows of the step under way and their ids, with those of these requests that are quiet."""
        return rows, sampled

    def schedule(self, plan: Plan) -> tuple[SchedulerOutput | None, list[Row]]:
        """One round under `plan`: what vLLM has scheduled (None: it was not asked), and all rows."""
        scheduler = self.scheduler
        if plan.preempt:
            scheduler.preempt(plan.preempt)
        scheduled = scheduler.schedule() if plan is STOCK else scheduler.schedule_with(plan)
        return scheduled, rows_of(scheduler, scheduled)

    def finish(
        self,
        scheduled: SchedulerOutput | None,
        rows: Sequence[Row],
        sampled: Sequence[list[int] | None],
        transfers: KVConnectorOutput | None,
    ) -> Sequence[Produced | Told]:
        """Finishes the step as `finish_step` says."""
        assert scheduled is not None
        return finish_step(self.scheduler, scheduled, rows, sampled, transfers)


def finish_step(
    scheduler: Scheduler,
    output: SchedulerOutput,
    rows: Sequence[Row],
    sampled: Sequence[list[int] | None],
    transfers: KVConnectorOutput | None = None,
) -> list[Produced]:
    """Give the step's sampled tokens to the scheduler; return those.

    `sampled` has one list per row, empty where the row does not sample yet, None where the device dropped it.
    `transfers`: loads from and stores to the host that have ended. A session has not finished when a chunk has been
    answered: it stays in the scheduler.
    """
    index = {row.request_id: i for i, row in enumerate(rows)}
    result = ModelRunnerOutput(
        req_ids=list(index),
        req_id_to_index=index,
        sampled_token_ids=[ids or [] for ids in sampled],
        kv_connector_output=transfers,
    )
    return [
        (
            out.request_id,
            out.new_token_ids,
            out.finish_reason is not None and _has_left(scheduler, out.request_id),
        )
        for outputs in scheduler.update_from_output(output, result).values()
        for out in outputs.outputs
    ]


def _has_left(scheduler: Scheduler, request_id: str) -> bool:
    """Whether a stopped request has ended; its blocks may stay until they are stored on the host."""
    request = scheduler.requests.get(request_id)
    return request is None or request.is_finished()
