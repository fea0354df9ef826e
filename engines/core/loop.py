"""One stage replica: the loop schedule -> execute -> update_from_output over vLLM's own scheduler.

What arrives during a step (requests, aborts) becomes visible when it ends, as in vLLM's engine core. The loop sleeps
when nothing can run and wakes on arrivals, on chunks for parked requests, and at the time a policy asked for.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from engines.core import vllm_adapter as vllm
from engines.core.device import Device
from engines.core.monitor import Monitor, SessionView
from engines.core.policy import Plan, Policy, StageView
from engines.core.recorder import Recorder
from engines.core.request import Progress, StageRequest
from engines.core.step_times import StepTimes
from engines.core.view import stage_view

STOCK = Plan()


class StageEngine:
    """One replica of one stage.

    ``on_token(request, tokens)`` and ``on_finish(request)`` receive its output at the end of a step. ``ready`` says
    whether a running request has the input that its next token needs.
    """

    def __init__(
        self,
        stage: str,
        replica: int,
        scheduler: vllm.StageScheduler,
        device: Device,
        on_token: Callable[[StageRequest, int], None],
        on_finish: Callable[[StageRequest], None],
        recorder: Recorder,
        monitor: Monitor,
        policy: Policy | None = None,
        ready: Callable[[StageRequest], bool] | None = None,
        prefix_caching: bool = False,
        keeps_kv: bool = True,
        abort_at_layer: bool = False,
    ) -> None:
        self.stage = stage
        self.replica = replica
        self.scheduler = scheduler
        self.device = device
        self.on_token = on_token
        self.on_finish = on_finish
        self.recorder = recorder
        self.monitor = monitor
        self.policy = policy
        self.ready = ready
        self.prefix_caching = prefix_caching
        self.keeps_kv = keeps_kv
        self.abort_at_layer = abort_at_layer
        self.requests: dict[str, StageRequest] = {}
        self.step_times = StepTimes()
        self.steps = 0
        self.vllm_ns = 0
        self.policy_ns = 0
        self.unscheduled_in_plan = 0
        self._in_flight: frozenset[str] = frozenset()
        self._inbox: list[tuple[str, StageRequest]] = []
        self._wakeup: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def load(self) -> int:
        """Requests at this replica, those included that it has yet to take in."""
        return len(self.requests) + sum(1 for verb, _ in self._inbox if verb == "add")

    def submit(self, request: StageRequest) -> None:
        request.arrive_s = self._loop.time()
        turn = request.reply.turn
        self.recorder.event(request.arrive_s, "arrive", turn.session, turn.turn, self.stage)
        self._inbox.append(("add", request))
        self.wake()

    def abort(self, request: StageRequest) -> None:
        """Cancel a request: at the end of the step, or with ``abort_at_layer`` at the next layer of the model."""
        self._inbox.append(("abort", request))
        if self.abort_at_layer:
            self.interrupt([request.id])
        self.wake()

    def interrupt(self, request_ids: Iterable[str]) -> None:
        """Drop requests from the step under way at its next layer boundary; what it computed for them runs again."""
        under_way = self._in_flight.intersection(request_ids)
        if under_way:
            self.device.interrupt(under_way)

    def wake(self) -> None:
        """Look again: something that could let a request run has happened."""
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def serve(self) -> None:
        """Run for ever; whoever started the task cancels it at the end of the run."""
        while True:
            if self._take_inbox(sampled=()):
                self._record_step(self._loop.time(), self._loop.time(), [], 0, 0)  # an abort has freed blocks
            plan = self._plan() if self.requests else STOCK
            if not self._can_run(plan) or not await self._step(plan):
                await self._sleep(plan.wake_s)

    async def _step(self, plan: Plan) -> bool:
        """One round. False when vLLM could schedule nothing."""
        scheduler, start_s = self.scheduler, self._loop.time()
        clock = time.perf_counter_ns()
        scheduled = scheduler.schedule() if plan is STOCK else scheduler.schedule_with(plan)
        self.vllm_ns += time.perf_counter_ns() - clock
        rows = vllm.rows_of(scheduler, scheduled)
        self._record_starts(rows, start_s)
        preempted = scheduled.preempted_req_ids or ()
        for request_id in preempted:
            turn = self.requests[request_id].reply.turn
            self.recorder.event(start_s, "preempt", turn.session, turn.turn, self.stage)
        self.unscheduled_in_plan += len(rows) < len(plan.order)
        self._in_flight = frozenset(scheduled.num_scheduled_tokens)
        sampled = await self.device.execute(scheduled, rows, self.requests)
        self._in_flight = frozenset()
        end_s = self._loop.time()
        dropped = vllm.dropped(rows, sampled) if None in sampled else []
        scheduler.withdraw(scheduled, dropped)
        self._take_inbox([row for row in rows if row.samples and row.request_id not in dropped])
        clock = time.perf_counter_ns()
        produced = vllm.finish_step(scheduler, scheduled, rows, sampled)
        self.vllm_ns += time.perf_counter_ns() - clock
        self.steps += 1
        self._record_step(start_s, end_s, rows, len(plan.held), len(preempted))
        for request_id, token_ids, finished in produced:
            self._deliver(self.requests[request_id], token_ids, finished, end_s)
        return bool(rows)

    def _deliver(self, request: StageRequest, token_ids: list[int], finished: bool, now: float) -> None:
        turn, tokens = request.reply.turn, len(token_ids)
        request.produced += tokens
        request.output.extend(token_ids)
        self.recorder.event(now, "token", turn.session, turn.turn, self.stage, tokens)
        self.on_token(request, tokens)
        if finished:
            del self.requests[request.id]
            self.recorder.event(now, "finish", turn.session, turn.turn, self.stage, request.produced)
            self.on_finish(request)

    def _take_inbox(self, sampled: "Sequence[vllm.Row]") -> bool:
        """Apply what arrived; True when something was aborted.

        ``sampled``: rows of the step that just ended with a token; that of an aborted request counts as generated.
        """
        if not self._inbox:
            return False
        inbox, self._inbox = self._inbox, []
        aborted = False
        for verb, request in inbox:
            if verb == "add":
                self.requests[request.id] = request
                self.scheduler.add_request(
                    vllm.make_request(
                        request.id,
                        request.prompt,
                        request.max_tokens,
                        request.arrive_s,
                        self.scheduler.block_size if self.prefix_caching else None,
                        request.reply.turn.session,
                        request.features,
                    )
                )
            elif self.requests.pop(request.id, None) is not None:
                self.scheduler.abort([request.id])
                request.produced += sum(row.request_id == request.id for row in sampled)
                turn, now = request.reply.turn, self._loop.time()
                self.recorder.event(now, "abort", turn.session, turn.turn, self.stage, request.produced)
                aborted = True
        return aborted

    def _plan(self) -> Plan:
        parked = self._parked()
        if self.policy is None:
            return Plan(held=parked) if parked else STOCK
        clock = time.perf_counter_ns()
        plan = self.policy.plan(self._view(parked))
        self.policy_ns += time.perf_counter_ns() - clock
        if parked:
            plan.held = plan.held | parked
        return plan

    def _parked(self) -> frozenset[str]:
        """Running requests whose next input chunk has not come: they keep KV and seat and wait."""
        if self.ready is None:
            return frozenset()
        return frozenset(
            id for id, request in self.requests.items() if request.started and not self.ready(request)
        )

    def _view(self, parked: frozenset[str]) -> StageView:
        now, requests, session_view = self._loop.time(), self.requests, self.monitor.view

        def known(request_id: str) -> tuple[float, Progress, SessionView]:
            request = requests[request_id]
            reply = request.reply
            return request.arrive_s, reply.progress, session_view(reply.turn.session, now)

        return stage_view(
            self.stage,
            now,
            self.scheduler,
            known,
            self.step_times.predict,
            parked,
            seats_left_out=len(parked),
        )

    def _can_run(self, plan: Plan) -> bool:
        return len(self.requests) > len(plan.held)

    async def _sleep(self, until_s: float | None) -> None:
        if self._inbox:
            return
        self._wakeup = self._loop.create_future()
        timer = None
        if until_s is not None:
            timer = self._loop.call_at(max(until_s, self._loop.time()), self.wake)
        await self._wakeup
        self._wakeup = None
        if timer is not None:
            timer.cancel()

    def _record_starts(self, rows: "list[vllm.Row]", now: float) -> None:
        for row in rows:
            request = self.requests[row.request_id]
            if not request.started:
                request.started = True
                turn = request.reply.turn
                self.recorder.event(now, "start", turn.session, turn.turn, self.stage)

    def _record_step(
        self, start_s: float, end_s: float, rows: "list[vllm.Row]", held: int, preempted: int
    ) -> None:
        scheduler = self.scheduler
        tokens = prefill = 0
        for row in rows:
            tokens += row.tokens
            if row.tokens > 1 or not row.samples:
                prefill += row.tokens
        if rows and not prefill:
            self.step_times.add(len(rows), end_s - start_s)
        allocatable, free = scheduler.allocatable_blocks, scheduler.free_blocks
        self.recorder.step(
            start_s,
            end_s - start_s,
            self.stage,
            self.replica,
            len(rows),
            tokens,
            prefill,
            len(scheduler.running),
            len(scheduler.waiting) + len(scheduler.kv_holding_waiting),
            held,
            allocatable - free if self.keeps_kv else 0,
            allocatable if self.keeps_kv else 0,
            preempted,
        )
