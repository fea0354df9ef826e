"""One stage replica: the loop schedule -> execute -> update_from_output over vLLM's own scheduler.

Commands that arrive during a step are applied when it ends, as in vLLM's engine core. The loop sleeps when nothing can
run. It wakes on arrivals, on input for parked requests, when a transfer ends, and at the policy's wake time.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, cast

from engines.core import vllm_adapter as vllm
from engines.core.commands import Abort, Add, Arrival, Command, Forget, Truncate
from engines.core.device import Row
from engines.core.fast_path.decode_batch import BatchTokens, Produced
from engines.core.first_come import OrderCount
from engines.core.host_kv import HandedKv, HostKv, KvTraffic
from engines.core.kv_manager import KvManager, KvStore
from engines.core.output import Followed, Output
from engines.core.policy import DEFAULT_PLAN, FollowingPolicy, Plan, Policy, StageView
from engines.core.recorder import Recorder
from engines.core.replica import Replica
from engines.core.request import StageRequest
from engines.core.requests import RequestTable
from engines.core.step import SchedulerStep
from engines.core.step_cost import StepCost, StepWork
from engines.core.view import stage_view


class StageEngine:
    """Drives one replica of one stage.

    `output` takes the products of its steps. `policy`: the order of requests; None: vLLM's own. `manager`: manages KV
    in the host's memory. `on_arrival`: may drop requests from the step under way when a command comes.
    `charge_eviction`: add the real seconds of choosing victims to the step (virtual time only). `path`: how rows pass
    through vLLM's scheduler; None: it schedules all of them.
    """

    def __init__(
        self,
        replica: Replica,
        output: Output,
        recorder: Recorder,
        policy: Policy | None = None,
        manager: KvManager | None = None,
        on_arrival: Arrival | None = None,
        charge_eviction: bool = False,
        path: "vllm.SchedulerPath | None" = None,
    ) -> None:
        self.stage = replica.stage.name
        self.index = replica.index
        self.replica = replica
        self.scheduler = replica.scheduler
        self.device = replica.device
        self.path = path or vllm.SchedulerPath(replica.scheduler)
        self.output = output
        if isinstance(policy, FollowingPolicy):
            self.output = cast(Output, Followed(output, policy))
        self.recorder = recorder
        self.policy = policy
        self.order = OrderCount(replica.scheduler.cached_tokens)
        self.manager = manager
        self.on_arrival = on_arrival
        self.charge_eviction = charge_eviction
        self.step_cost = StepCost()
        self.steps = 0
        self.vllm_ns = 0
        self.policy_ns = 0
        self.unscheduled_in_plan = 0
        if manager is not None:
            assert replica.transfers is not None, "a KV manager needs a host to load from"
            manager.attach(KvStore(replica.scheduler, replica.transfers))
        self.traffic: KvTraffic | None = None
        if replica.transfers is not None:
            self.traffic = HostKv(replica, recorder, manager)
        elif replica.port is not None:
            self.traffic = HandedKv(replica, recorder, self.wake)
        self.table = RequestTable(replica, recorder, manager, self.traffic, self.path)
        self.requests = self.table.requests
        self.current_step: SchedulerStep | None = None
        self._inbox: list[Command] = []
        # Commands that come too late for the step which is planned already.
        self._next_inbox: list[Command] = []
        self._ahead = replica.stage.async_scheduling and replica.device.modelled
        self.wakeup: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def load(self) -> int:
        """Requests at this replica, including those in its inbox."""
        coming = (*self._inbox, *self._next_inbox)
        return len(self.requests) + sum(isinstance(command, Add) for command in coming)

    @property
    def busy(self) -> bool:
        """Return True while requests, transfers or anything else is under way."""
        return bool(self.load or self._inbox or (self.traffic is not None and self.traffic.busy))

    def counters(self) -> list[Counter[str]]:
        """Return this stage's counters, besides the loop's own times: of the policy, its plans, and KV that outlives
        requests."""
        order = None if self.policy is None else self.order
        sources = (self.policy, order, self.manager, self.replica.transfers)
        counters = [source.counters for source in sources if source is not None]
        if self.replica.stage.prefix_caching:
            truncated = Counter(truncated_blocks=self.table.truncated_blocks)
            counters += [self.scheduler.evictions.counters, truncated]
        if self.scheduler.next_use is not None:
            counters.append(self.scheduler.next_use.counters)
        return counters + self.output.counters()

    def enqueue(self, command: Command) -> None:
        """Apply a command when the step under way has ended, or one step later where the next step is planned already
        (`_next_inbox`). Requests that `on_arrival` names leave the step under way earlier."""
        late = self._ahead and self.current_step is not None
        (self._next_inbox if late else self._inbox).append(command)
        if self.current_step is not None and self.on_arrival is not None:
            self.interrupt(self.on_arrival(command, self.current_step))
        self.wake()

    def submit(self, request: StageRequest) -> None:
        """Submit a request. ValueError if its prompt leaves no room for a token: vLLM's server would reject it, and its
        scheduler would never run it."""
        longest = self.replica.stage.max_model_len - 1
        if len(request.prompt) > longest:
            raise ValueError(
                f"request {request.id} has a prompt of {len(request.prompt)} tokens, and stage {self.stage} takes "
                f"{longest} at most (max_model_len - 1); cut what its gateway asks for."
            )
        request.arrived(self._loop.time())
        if not request.speculative:
            self.recorder.event(request.arrive_s, "arrive", request.session, request.turn, self.stage)
        self.enqueue(Add(request))

    def keep(self, request: StageRequest) -> None:
        """Keep the KV of a request that has its first token, until another replica has it or the request is aborted."""
        assert isinstance(self.traffic, HandedKv)
        self.traffic.keep(request.id)

    def take_over(self, request: StageRequest, source: "StageEngine") -> None:
        """Continue a request whose KV `source` keeps."""
        assert isinstance(self.traffic, HandedKv) and isinstance(source.traffic, HandedKv)
        self.traffic.expect(request.id, source.traffic)
        self.enqueue(Add(request))

    def abort(self, request: StageRequest) -> None:
        self.path.count_tokens(request.id)
        self.enqueue(Abort(request))

    def truncate(self, session: int, tokens: int) -> None:
        """Cut a session's context to the `tokens` tokens that its user knows after a barge-in. KV beyond them cannot be
        hit again and becomes free (LiveServe section 3)."""
        if self.replica.stage.prefix_caching:
            self.enqueue(Truncate(session, tokens))

    def expect_turn(self, session: int, history: list[int], features: Sequence[Any]) -> None:
        """Expect a request of the session with this history."""
        if self.manager is not None:
            self.scheduler.remember(session, history, features)
            self.manager.expect_turn(session, self._loop.time())
            self.wake()

    def cancel_expected_turn(self, session: int) -> None:
        """Take back `expect_turn`: no request is coming."""
        if self.manager is not None:
            self.manager.cancel_expected_turn(session, self._loop.time())
            self.wake()

    def forget(self, session: int) -> None:
        self.table.forget(session)
        if self.manager is not None:
            self.wake()
        for inbox in (self._inbox, self._next_inbox):
            if any(isinstance(command, Add) and command.request.session == session for command in inbox):
                inbox.append(Forget(session))  # a command after the end makes the session known again

    def interrupt(self, request_ids: Iterable[str]) -> None:
        """Drop requests from the step under way at its next layer boundary; the step's work for them runs again."""
        step = self.current_step
        if step is not None:
            under_way = {row.request_id for row in step.rows}.intersection(request_ids)
            if under_way:
                self.device.interrupt(frozenset(under_way))

    @property
    def has_arrivals(self) -> bool:
        """Return True if something has come since the loop last looked."""
        return bool(self._inbox)

    def wake(self) -> None:
        """Make the loop look again: a request may be able to run now."""
        if self.wakeup is not None and not self.wakeup.done():
            self.wakeup.set_result(None)

    async def serve(self) -> None:
        """Run for ever; the owner of the task cancels it at the end of the run."""
        self.path.attach(self)
        plan = self.poll_and_plan()
        while True:
            if self.can_run(plan) and await self._step(plan):
                plan = await self.path.run_steady(self.poll_and_plan())
            else:
                await sleep_until(self.next_s(plan), [self])
                plan = self.poll_and_plan()

    def poll_and_plan(self) -> Plan:
        """Take in all arrivals; returns the plan of the next step."""
        if self._next_inbox and not self.requests:
            self.open_next_inbox()  # nothing was planned
        if self._inbox and self._take_inbox(sampled=()):  # blocks have become free
            now = self._loop.time()
            self.output.steps.record(now, now, StepWork(), queued=self.path.queued)
        plan = self._plan() if self.requests else DEFAULT_PLAN
        if self.manager is not None:
            self.manager.act(self._loop.time(), plan.urgent_short)
        return plan

    async def _step(self, plan: Plan) -> bool:
        step = self.schedule_step(plan)
        if step.begin_s > step.start_s:
            await asyncio.sleep(step.begin_s - step.start_s)
        self.current_step = step
        sampled = await self.path.execute(self.device, step, self.requests)
        return self.finish_step(step, sampled)

    def schedule_step(self, plan: Plan) -> SchedulerStep:
        """Schedule a step, and start its loads."""
        scheduler, traffic, start_s = self.scheduler, self.traffic, self._loop.time()
        chosen_s = scheduler.evictions.total_s
        scheduled, rows = self.schedule(plan)
        begin_s, preempted = start_s, ()
        if scheduled is not None:
            if traffic is not None:
                begin_s = traffic.begin(scheduled, self.requests, start_s)
            self.table.record_starts(rows, start_s)
            preempted = scheduled.preempted_req_ids or ()
            self.record_preempted(preempted, start_s)
        passed_over = len(rows) < len(plan.order) and vllm.passed_over(scheduler, plan, rows)
        self.unscheduled_in_plan += passed_over
        if self.charge_eviction:
            begin_s += scheduler.evictions.total_s - chosen_s
        self.open_next_inbox()
        return SchedulerStep(plan, scheduled, rows, self.path.summed_rows, start_s, begin_s, preempted, passed_over)

    def finish_step(self, step: SchedulerStep, sampled: Sequence[list[int] | None]) -> bool:
        """Update the scheduler after a step, log the step and deliver its tokens. Returns False when vLLM could
        schedule nothing and learnt nothing: then the next step would be the same."""
        scheduler, traffic, end_s = self.scheduler, self.traffic, self._loop.time()
        scheduled, rows, preempted = step.scheduled, step.rows, step.preempted
        self.current_step = None
        if self._inbox:
            leaving = [command.request.id for command in self._inbox if isinstance(command, Abort)]
            rows, sampled = self.path.list_rows(leaving, rows, sampled)
        work = StepWork.of_rows(rows, step.summed)
        tokens = sum([row.tokens for row in rows]) + step.summed.requests
        dropped = vllm.dropped(rows, sampled) if None in sampled else []
        withdrawn = scheduler.withdraw(scheduled, dropped) if dropped else frozenset()
        if self._inbox:
            self._take_inbox([row for row in rows if row.samples and row.request_id not in dropped])
        arrived = None if traffic is None else traffic.end(scheduled, withdrawn, end_s)
        produced = self.update(scheduled, rows, sampled, arrived)
        self.steps += 1
        if work.requests and self.policy is not None:
            self.step_cost.add(work, end_s - step.start_s)
        held, queued = len(step.plan.held), self.path.queued
        self.output.steps.record(step.start_s, end_s, work, tokens, held, len(preempted), queued=queued)
        if traffic is not None:
            traffic.take_arrived(arrived is not None, self.requests, end_s)
        self.output.deliver(produced, self.requests, end_s)
        return bool(work.requests) or bool(preempted) or arrived is not None

    def open_next_inbox(self) -> None:
        """Open the inbox of a step that begins: later commands are taken in at its end."""
        if self._next_inbox:
            self._inbox += self._next_inbox
            self._next_inbox = []

    def schedule(self, plan: Plan) -> tuple[Any, list[Row]]:
        """Call vLLM's `schedule` as far as the path needs it, and time it."""
        clock = time.perf_counter_ns()
        scheduled, rows = self.path.schedule(plan)
        self.vllm_ns += time.perf_counter_ns() - clock
        return scheduled, rows

    def update(
        self, scheduled: Any, rows: Sequence[Row], sampled: Sequence[list[int] | None], arrived: Any
    ) -> Sequence[Produced | BatchTokens]:
        """Call vLLM's `update_from_output` as far as the path needs it, and time it."""
        clock = time.perf_counter_ns()
        produced = self.path.update(scheduled, rows, sampled, arrived)
        self.vllm_ns += time.perf_counter_ns() - clock
        return produced

    def record_preempted(self, request_ids: Iterable[str], now: float) -> None:
        for request_id in request_ids:
            request = self.requests[request_id]
            if not request.speculative:
                self.recorder.event(now, "preempt", request.session, request.turn, self.stage)

    def take_in(self) -> bool:
        """Apply all arrivals, between two steps; True when blocks have become free."""
        return self.has_arrivals and self._take_inbox(sampled=())

    def _take_inbox(self, sampled: Sequence[Row]) -> bool:
        """Apply the inbox and its consequences; True when blocks have become free."""
        freed = False
        while self._inbox:
            inbox, self._inbox = self._inbox, []
            for command in inbox:
                freed |= command.apply(self.table, sampled)
        return freed

    def _plan(self) -> Plan:
        parked = self.output.parked(self.requests)
        if self.policy is None:
            return Plan(held=parked) if parked else DEFAULT_PLAN
        clock = time.perf_counter_ns()
        view = self.view_now(parked)
        plan = self.policy.plan(view)
        if not isinstance(plan, Plan):
            raise TypeError(
                f"{type(self.policy).__name__}.plan returned {plan!r:.60} at {self.stage}, but a policy returns a Plan"
            )
        self.policy_ns += time.perf_counter_ns() - clock
        self.order.see(view, plan)
        if parked:
            plan.held = plan.held | parked
        return plan

    def view_now(self, parked: frozenset[str]) -> StageView:
        now, requests, view_of = self._loop.time(), self.requests, self.output.view
        view = stage_view(
            self.stage,
            now,
            self.scheduler,
            requests,
            view_of,
            self.step_cost.predict,
            parked,
            slots_left_out=len(parked),
        )
        if parked:
            view.parked = [view_of(requests[request_id], now) for request_id in sorted(parked)]
        return view

    def can_run(self, plan: Plan) -> bool:
        """Return True if a round could do anything."""
        if self.traffic is not None:
            return self.traffic.runnable(self.requests, plan.held, self._loop.time())
        return len(self.requests) > len(plan.held)

    def next_s(self, plan: Plan) -> float | None:
        """Return the time of the next look without an arrival, s; None: none is planned."""
        times = [plan.wake_s]
        if self.traffic is not None:
            times.append(self.traffic.next_s)
        if self.manager is not None:
            times.append(self.manager.wake_s)
        return min((at_s for at_s in times if at_s is not None), default=None)


async def sleep_until(at_s: float | None, engines: Sequence[StageEngine]) -> None:
    """Wait until something arrives at one of these engines, one of them is woken, or it is `at_s` (s). Returns at once
    if something has arrived already."""
    if any([engine.has_arrivals for engine in engines]):
        return
    loop = asyncio.get_running_loop()
    wakeup = loop.create_future()
    for engine in engines:
        engine.wakeup = wakeup
    timer = None
    if at_s is not None:
        timer = loop.call_at(max(at_s, loop.time()), engines[0].wake)
    await wakeup
    for engine in engines:
        engine.wakeup = None
    if timer is not None:
        timer.cancel()
