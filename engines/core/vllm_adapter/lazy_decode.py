"""Decode steps of which vLLM need not be asked.

Most rows of most steps write one more token into a block that their request holds. vLLM would count up and go on, so
such rows run without it: their tokens are noted here and given to the request at once, before anything but the next
such step can look at it. All others go through vLLM's own `schedule` and `update_from_output`, in the same round and
the same order: prompts, whoever waits, a row that needs a block, fills one that others may hit, or brings its last
token. Plain rows are set aside meanwhile, as tokens and seats that are taken. Where the rest might not fit, vLLM is
given all of it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request

from engines.core.device import Row
from engines.core.policy import Plan
from engines.core.vllm_adapter.scheduling import Produced, Rounds, StageScheduler, finish_step, rows_of


@dataclass(slots=True)
class Decode:
    """A request whose next rows are plain up to the one on a context of `until` tokens. `owed`: tokens sampled that
    vLLM's request has yet to be given."""

    request: Request
    row: Row
    until: int
    owed: list[int] = field(default_factory=list)


class LazyDecodes(Rounds):
    """The rounds of a scheduler whose device needs no more than rows, and whose KV has no window."""

    def __init__(self, scheduler: StageScheduler) -> None:
        super().__init__(scheduler)
        scheduler.lazy = self
        self._decodes: dict[str, Decode] = {}

    def owed(self, request_id: str) -> int:
        """Tokens sampled and computed that vLLM's request does not count yet."""
        decode = self._decodes.get(request_id)
        return 0 if decode is None else len(decode.owed)

    def settle(self, request_ids: Iterable[str]) -> None:
        """Give these requests what they are owed."""
        for request_id in request_ids:
            decode = self._decodes.pop(request_id, None)
            if decode is not None and decode.owed:
                decode.request.append_output_token_ids(decode.owed)
                decode.request.num_computed_tokens += len(decode.owed)

    def schedule(self, plan: Plan) -> tuple[SchedulerOutput | None, list[Row]]:
        scheduler = self.scheduler
        runnable = scheduler.in_order(plan)
        plain: dict[str, Row] = {}
        others: list[Request] = []
        for request in runnable:
            decode = self._decodes.get(request.request_id) or self._enter(request)
            if decode is not None and decode.row.context < decode.until:
                plain[request.request_id] = decode.row
            else:
                others.append(request)
        self.settle([request.request_id for request in others])
        if not plain or not self._fits(others, len(plain), plan):
            self.settle(plain)
            scheduled = scheduler.schedule_with(plan)
            return scheduled, rows_of(scheduler, scheduled)
        if not others and not scheduler.would_look(plan):
            return None, list(plain.values())
        scheduled = scheduler.schedule_with(plan, aside=plain.keys())
        rows = {row.request_id: row for row in rows_of(scheduler, scheduled)} | plain
        ordered = [rows.pop(id) for request in runnable if (id := request.request_id) in rows]
        return scheduled, [*ordered, *rows.values()]

    def finish(
        self,
        scheduled: SchedulerOutput | None,
        rows: Sequence[Row],
        sampled: Sequence[list[int] | None],
        transfers: KVConnectorOutput | None,
    ) -> list[Produced]:
        decodes, through_vllm = self._decodes, scheduled.num_scheduled_tokens if scheduled is not None else {}
        produced: dict[str, Produced] = {}
        if scheduled is not None or transfers is not None:
            theirs = [i for i, row in enumerate(rows) if row.request_id in through_vllm]
            produced = {
                each[0]: each
                for each in finish_step(
                    self.scheduler,
                    scheduled if scheduled is not None else SchedulerOutput.make_empty(),
                    [rows[i] for i in theirs],
                    [sampled[i] for i in theirs],
                    transfers,
                )
            }
        outputs = []
        for row, ids in zip(rows, sampled, strict=True):
            request_id = row.request_id
            if request_id in through_vllm:
                if request_id in produced:
                    outputs.append(produced[request_id])
            elif (
                ids is not None and request_id in decodes
            ):  # not dropped by the device, nor aborted meanwhile
                decode = decodes[request_id]
                decode.owed += ids
                decode.row = Row(request_id, 1, row.context + 1, True)
                outputs.append((request_id, ids, False))
        return outputs

    def _enter(self, request: Request) -> Decode | None:
        """The request as a plain decode; None when its next row is none."""
        context, params = request.num_computed_tokens, request.sampling_params
        if request.num_tokens - context != 1 or request.has_encoder_inputs:
            return None
        if params is None or params.stop_token_ids:
            return None
        size = self.scheduler.block_size
        last = context + request.max_tokens - request.num_output_tokens - 1
        until = min(
            last,
            self.scheduler.max_model_len - 2,
            self.scheduler.blocks_held(request.request_id) * size,
        )
        if request._block_hasher is not None:
            until = min(until, context // size * size + size - 1)
        if until <= context:
            return None
        decode = self._decodes[request.request_id] = Decode(
            request, Row(request.request_id, 1, context, True), until
        )
        return decode

    def _fits(self, others: Sequence[Request], plain: int, plan: Plan) -> bool:
        """Whether the other running requests find tokens and blocks, so that vLLM would pass over nobody and preempt
        nobody."""
        scheduler = self.scheduler
        budget = scheduler.max_num_scheduled_tokens
        if plan.step_budget is not None:
            budget = min(budget, plan.step_budget)
        size, tokens, blocks = scheduler.block_size, plain, 0
        for request in others:
            tokens += request.num_tokens - request.num_computed_tokens
            blocks += -(-request.num_tokens // size) - scheduler.blocks_held(request.request_id)
        return tokens < budget and blocks <= scheduler.free_blocks
