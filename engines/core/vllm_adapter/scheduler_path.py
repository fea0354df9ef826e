"""The path of a step's rows through vLLM's scheduler: they are scheduled, and their tokens go back to it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput

from engines.core.device import NO_ROWS, Device, Row, SummedRows
from engines.core.fast_path.decode_batch import BatchTokens, Produced
from engines.core.policy import DEFAULT_PLAN, Plan
from engines.core.request import StageRequest
from engines.core.step import SchedulerStep
from engines.core.vllm_adapter.scheduling import StageScheduler

Sampled = Sequence[list[int] | None]
"""For each row the token ids that it sampled: empty if it does not sample yet, None if the device dropped it."""

STARTED = SchedulerOutput.make_empty()
"""Replaces vLLM's output for a step in which requests start that vLLM does not know."""


def rows_of(scheduler: Scheduler, output: SchedulerOutput) -> list[Row]:
    """Return the rows of a scheduled step. Call it right after `schedule`, which has advanced the counters."""
    requests, rows = scheduler.requests, []
    for request_id, tokens in output.num_scheduled_tokens.items():
        request = requests[request_id]
        computed = request.num_computed_tokens
        rows.append(Row(request_id, tokens, computed - tokens, computed >= request.num_tokens))
    return rows


def passed_over(scheduler: Scheduler, plan: Plan, rows: Sequence[Row]) -> bool:
    """Return True if a request that the plan let run did not, though it waits for nothing."""
    served = {row.request_id for row in rows}
    unserved = [scheduler.requests[id] for id in plan.order if id not in served]
    return any(request not in scheduler.deferred_waiting for request in unserved)


def dropped(rows: Sequence[Row], sampled: Sampled) -> list[str]:
    """Return the requests that an interruption took out of the step."""
    return [row.request_id for row, ids in zip(rows, sampled, strict=True) if ids is None]


class SchedulerPath:
    """The path of a replica's steps on which vLLM schedules every row.

    `StageEngine` calls `attach` once, then `schedule`, the device through `execute`, and `update` for each step.
    The paths of `engines.core.fast_path` let rows bypass vLLM's scheduler.
    """

    def __init__(self, scheduler: StageScheduler) -> None:
        self.scheduler = scheduler

    @property
    def summed_rows(self) -> SummedRows:
        """Rows of the step that `schedule` does not list."""
        return NO_ROWS

    @property
    def queued(self) -> int:
        """Number of requests that wait on this path and not in vLLM's queues."""
        return 0

    def add(self, request: StageRequest) -> bool:
        """Take a request that vLLM need not know; False if vLLM has to take it."""
        return False

    def abort(self, request_id: str) -> bool:
        """Drop a request that `add` has taken; False if vLLM has it."""
        return False

    def attach(self, engine: Any, in_lockstep: bool = False) -> None:
        """Attach the StageEngine, before the first step. `in_lockstep`: other replicas step with it."""

    def schedule(self, plan: Plan) -> tuple[SchedulerOutput | None, list[Row]]:
        """Schedule a step under `plan`. Returns vLLM's output and the step's rows. The output is None if vLLM's
        `schedule` was not called."""
        scheduler = self.scheduler
        if plan.preempt:
            scheduler.preempt(plan.preempt)
        scheduled = scheduler.schedule() if plan is DEFAULT_PLAN else scheduler.schedule_with(plan)
        return scheduled, rows_of(scheduler, scheduled)

    async def execute(
        self, device: Device, step: SchedulerStep, requests: Mapping[str, StageRequest]
    ) -> list[list[int] | None]:
        """Let the device run a step; returns sampled ids of its listed rows."""
        return await device.execute(step.scheduled, step.rows, requests)

    def list_rows(
        self, request_ids: Iterable[str], rows: Sequence[Row], sampled: Sampled
    ) -> tuple[Sequence[Row], Sampled]:
        """Return rows and ids of the step under way, with the rows of these requests listed if they were summed."""
        return rows, sampled

    def update(
        self,
        scheduled: SchedulerOutput | None,
        rows: Sequence[Row],
        sampled: Sampled,
        transfers: KVConnectorOutput | None,
    ) -> Sequence[Produced | BatchTokens]:
        """Finish the step: give vLLM's scheduler the sampled tokens, as `finish_step` does; returns the new
        products."""
        return finish_step(self.scheduler, scheduled, rows, sampled, transfers)

    async def run_steady(self, plan: Plan) -> Plan:
        """Run the following steps while they equal the last one; returns the plan of the first other step."""
        return plan

    def count_tokens(self, request_id: str) -> None:
        """Bring a request's counts up to the tokens that it has sampled."""


def finish_step(
    scheduler: Scheduler,
    output: SchedulerOutput | None,
    rows: Sequence[Row],
    sampled: Sampled,
    transfers: KVConnectorOutput | None = None,
) -> list[Produced]:
    """Give the step's sampled tokens to the scheduler, and return them.

    `output`: of `schedule`; None: vLLM was not asked. `transfers`: loads from and stores to the host that have ended. A
    session whose chunk has been answered is not finished: it stays in the scheduler.
    """
    if output is None:
        output = SchedulerOutput.make_empty()
    index = {row.request_id: i for i, row in enumerate(rows)}
    result = ModelRunnerOutput(
        req_ids=list(index),
        req_id_to_index=index,
        sampled_token_ids=[ids or [] for ids in sampled],
        kv_connector_output=transfers,
    )
    return [
        (out.request_id, out.new_token_ids, out.finish_reason is not None and _has_left(scheduler, out.request_id))
        for outputs in scheduler.update_from_output(output, result).values()
        for out in outputs.outputs
    ]


def _has_left(scheduler: Scheduler, request_id: str) -> bool:
    """Return True if a stopped request has ended; its blocks may stay until they are stored on the host."""
    request = scheduler.requests.get(request_id)
    return request is None or request.is_finished()
