"""The decode fast path: the path of a replica's steps on which simple decodes bypass vLLM's scheduler."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from engines.core.device import CallbackDevice, Device, Row, SummedRows, SummingDevice
from engines.core.engine import StageEngine
from engines.core.fast_path.decode_batch import BatchTokens, Produced
from engines.core.fast_path.one_step_path import OneStepPath
from engines.core.fast_path.steady_steps import SteadyRows, SteadySteps
from engines.core.fast_path.summed_decodes import SummedDecodes
from engines.core.fast_path.unstreamed_tokens import UnstreamedTokens
from engines.core.output import StageOutput
from engines.core.policy import DEFAULT_PLAN, Plan
from engines.core.replica import Replica
from engines.core.request import StageRequest
from engines.core.stage import reach
from engines.core.step import SchedulerStep
from engines.core.vllm_adapter.scheduler_path import Sampled, SchedulerPath, finish_step, rows_of
from engines.core.vllm_adapter.scheduling import StageScheduler
from engines.core.vllm_adapter.simple_decode import SimpleDecode, SimpleDecodes, StoresOnly


def path_of(replica: Replica, fast: bool) -> SchedulerPath:
    """Return the path of a replica's steps. `fast`: one of the fast paths, if the replica can take it: its device needs
    no more than rows, and some of its layers have no window."""
    if fast and replica.device.modelled and OneStepPath.serves(replica):
        return OneStepPath(replica)
    if fast and replica.device.modelled and not replica.scheduler.windowed:
        return DecodeFastPath(replica.scheduler)
    return SchedulerPath(replica.scheduler)


class DecodeFastPath(SchedulerPath):
    """Implements `SchedulerPath` so that vLLM schedules only rows that are not simple.

    `decodes`: by id, the requests with tokens that vLLM does not have; `StageScheduler` has one synced before it reads
    it.
    """

    def __init__(self, scheduler: StageScheduler) -> None:
        super().__init__(scheduler)
        scheduler.bypass = self
        self.decodes: dict[str, SimpleDecode] = {}
        self._simple = SimpleDecodes(scheduler)
        self._summed = SummedDecodes(self._simple)
        self._steady = SteadyRows(scheduler)
        self._steady_steps: SteadySteps | None = None
        self._places: dict[str, int] = {}

    @property
    def summed_rows(self) -> SummedRows:
        return self._summed.rows

    def attach(self, engine: StageEngine, in_lockstep: bool = False) -> None:
        """Sums are allowed where no policy and no `on_arrival` reads single rows, and either the replicas step in
        lockstep (`engines.core.lockstep`), or listeners take batches, the device takes sums and no KV comes or goes.
        Steady steps need a device that calls back, and no lockstep."""
        output, device, stage = engine.output, engine.device, engine.replica.stage
        if isinstance(output, StageOutput) and engine.policy is None and engine.on_arrival is None:
            sums = isinstance(device, SummingDevice) and device.takes_sums
            if in_lockstep or (sums and output.batch_listeners is not None and engine.traffic is None):
                self._summed.unstreamed = UnstreamedTokens(engine.requests, output, stage.decoder.vocab)
                self._summed.reach = reach(stage)
        if not in_lockstep and isinstance(device, CallbackDevice) and device.calls_back:
            self._steady_steps = SteadySteps(engine, self._steady, device)

    def schedule(self, plan: Plan) -> tuple[Any, list[Row]]:
        steady = self._steady.next(plan)
        if steady is not None:
            return None, steady
        scheduled, rows = self._schedule(plan)
        self._summed.scheduled_step = self._summed.step
        return scheduled, rows

    async def execute(
        self, device: Device, step: SchedulerStep, requests: Mapping[str, StageRequest]
    ) -> list[list[int] | None]:
        if not step.summed.requests:
            return await device.execute(step.scheduled, step.rows, requests)
        return await cast(SummingDevice, device).execute(step.scheduled, step.rows, requests, step.summed)

    def list_rows(
        self, request_ids: Iterable[str], rows: Sequence[Row], sampled: Sampled
    ) -> tuple[Sequence[Row], Sampled]:
        more, ids = self._summed.remove_requests(request_ids)
        return ([*rows, *more], [*sampled, *ids]) if more else (rows, sampled)

    def update(
        self, scheduled: Any, rows: Sequence[Row], sampled: Sampled, transfers: Any
    ) -> Sequence[Produced | BatchTokens]:
        """Give vLLM the tokens of its own rows, and note those of the others, in the order of rows."""
        members = self._summed.members
        if type(scheduled) is StoresOnly:
            scheduled = None
        through_vllm = scheduled is not None or transfers is not None
        if scheduled is not None:
            self._places = {}  # it may have taken in requests
        places = self._running_places() if members else self._places
        scheduled_ids = scheduled.num_scheduled_tokens if scheduled is not None else {}
        finished: dict[str, Produced] = {}
        if through_vllm:
            indices = [i for i, row in enumerate(rows) if row.request_id in scheduled_ids]
            own_rows, own_ids = [rows[i] for i in indices], [sampled[i] for i in indices]
            ended = finish_step(self.scheduler, scheduled, own_rows, own_ids, transfers)
            finished = {product[0]: product for product in ended}
            self._places = {}  # requests may have left
        produced: list[Produced] = []
        for row, ids in zip(rows, sampled, strict=True):
            request_id = row.request_id
            if request_id in scheduled_ids:
                if request_id in finished:
                    produced.append(finished[request_id])
            elif ids is None:  # the device dropped it, and the other rows are ahead of it now
                self._steady.left = 0
            elif request_id in self.decodes:  # it was not aborted in the meantime
                decode = self.decodes[request_id]
                decode.unsynced += ids
                decode.row = Row(request_id, 1, row.context + 1, True)
                produced.append((request_id, ids, False))
        self._summed.advance()
        return members.merge(produced, places) if members else produced

    async def run_steady(self, plan: Plan) -> Plan:
        return plan if self._steady_steps is None else await self._steady_steps.run(plan)

    def count_tokens(self, request_id: str) -> None:
        self._summed.make_batched(request_id)

    def sync_to_vllm(self, request_ids: Iterable[str]) -> None:
        """Give vLLM all tokens and counts of these requests. They leave the fast path until `_divide` finds them simple
        again."""
        self._steady.clear()
        for request_id in request_ids:
            decode = self.decodes.pop(request_id, None)
            if decode is not None:
                self._summed.remove(decode)
                self._simple.give_back(decode)
                self._summed.cache_full_block(decode)

    def sync_tokens(self, request_id: str) -> None:
        self._simple.sync(self.decodes[request_id])

    def cache_full_blocks(self) -> None:
        """Let vLLM know of all full blocks."""
        self._summed.cache_full_blocks()

    def _schedule(self, plan: Plan) -> tuple[Any, list[Row]]:
        """Schedule a step that is not steady."""
        scheduler, summed = self.scheduler, self._summed
        self._steady.left = 0
        if plan is DEFAULT_PLAN:
            summed.remove_ended()
        else:
            summed.remove_all()
        summed.remove_hit(plan)
        if plan.preempt:
            self.sync_to_vllm(plan.preempt)
            scheduler.preempt(plan.preempt)
        runnable = self._listed() if summed.decodes else scheduler.in_order(plan)
        simple, full, others = self._divide(runnable, plan)
        looks = bool(others) or scheduler.would_look(plan)
        if looks and scheduler.offloads:
            others, full = others + full, []
        order = scheduler.running if summed.decodes else runnable
        left = self._simple.token_budget(plan) - len(simple) - len(summed.decodes) - len(full)
        tokens, blocks = self._simple.needs(others, plan, left, order[-1] if order else None)
        enough = self._simple.groups * (blocks + len(full)) <= scheduler.free_blocks
        if not enough or tokens > left or left < 1:
            # vLLM might pass over a request or preempt one: it decides, and sees all requests for that.
            self.sync_to_vllm([*simple, *summed.decodes])
            scheduled = scheduler.schedule_with(plan)
            return scheduled, rows_of(scheduler, scheduled)
        scheduled = None
        if blocks:
            others += full  # vLLM gives out blocks in its order, to these among the others
        elif full and scheduler.offloads:
            scheduled, decodes = self._simple.store(full)
            simple |= {decode.row.request_id: decode for decode in decodes}
            self.decodes |= simple
        else:
            for request in full:
                decode = self.decodes[request.request_id] = self._simple.through_full_block(request)
                if plan is not DEFAULT_PLAN or not summed.add(decode):
                    simple[request.request_id] = decode
        rows = {request_id: decode.row for request_id, decode in simple.items()}
        if looks:
            rest = [r for r in runnable if (id := r.request_id) not in simple and id not in summed.decodes]
            bypassing = len(simple) + len(summed.decodes)
            scheduled = scheduler.schedule_with(plan, runnable=rest, bypassing=bypassing)
            rows |= {row.request_id: row for row in rows_of(scheduler, scheduled)}
        else:
            scheduler.order_waiting(plan)  # the next view and the next plan begin with this order
        ordered = [rows.pop(id) for request in runnable if (id := request.request_id) in rows]
        ordered += rows.values()
        through_vllm = scheduled is not None and type(scheduled) is not StoresOnly
        if not through_vllm and simple and summed.unstreamed is None and not plan.preempt:
            self._steady.start([simple[row.request_id] for row in ordered], plan)
        return scheduled, ordered

    def _divide(self, runnable: Iterable[Any], plan: Plan) -> tuple[dict[str, SimpleDecode], list[Any], list[Any]]:
        """Divide vLLM's runnable requests: simple decodes whose rows are listed, decodes that need a block or fill one,
        and requests for vLLM, which include requests with a cap of 0."""
        simple: dict[str, SimpleDecode] = {}
        full, others = [], []
        stopped = {request_id for request_id, cap in plan.caps.items() if cap < 1}
        for request in runnable:
            request_id = request.request_id
            if request_id in stopped:
                self.sync_to_vllm([request_id])
                others.append(request)
                continue
            decode = self.decodes.get(request_id) or self._simple.find(request)
            if decode is None:
                others.append(request)
                continue
            self.decodes[request_id] = decode
            if decode.row.context < decode.until:
                if plan is not DEFAULT_PLAN or not self._summed.add(decode):
                    simple[request_id] = decode
            else:
                self.sync_to_vllm([request_id])
                to_vllm = self._simple.at_last_token(request) or (
                    self.scheduler.offloads and not self._simple.may_store
                )
                (others if to_vllm else full).append(request)
        return simple, full, others

    def _listed(self) -> list[Any]:
        """Return running requests that are not summed, in vLLM's order."""
        summed, running = self._summed.decodes, self.scheduler.running
        if len(summed) == len(running):
            return []
        return [request for request in running if request.request_id not in summed]

    def _running_places(self) -> dict[str, int]:
        """Return request id -> place among the running requests. While vLLM is not asked, requests can only leave."""
        running = self.scheduler.running
        if len(self._places) != len(running):
            self._places = {request.request_id: place for place, request in enumerate(running)}
        return self._places
