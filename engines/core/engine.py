"""One stage replica: the loop schedule -> execute -> update_from_output over vLLM's own scheduler.

What arrives during a step (requests, aborts, KV from the host) becomes visible when it ends, as in vLLM's engine core.
The loop sleeps when nothing can run and wakes on arrivals, on chunks for parked requests, when a transfer ends, and at
the time a policy asked for.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from engines.core import vllm_adapter as vllm
from engines.core.device import Device
from engines.core.kv_manager import KvManager
from engines.core.kv_store import ReplicaStore
from engines.core.policy import Plan, Policy, StageView
from engines.core.recorder import Recorder
from engines.core.request import Progress, StageRequest
from engines.core.step_cost import StepTimes
from engines.core.view import stage_view
from engines.speaking.monitor import Monitor, SessionView

STOCK = Plan()


class StageEngine:
    """One replica of one stage.

    `on_token(request, tokens)` and `on_finish(request)` receive its output at the end of a step. `ready` says
    whether a running request has the input that its next token needs. `transfers`: to and from the host's memory,
    where KV goes there; `manager` then decides what stays and what comes back early. `charge_eviction`: the real
    seconds of choosing victims are part of the step (virtual time only).
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
        transfers: vllm.HostTransfers | None = None,
        manager: KvManager | None = None,
        charge_eviction: bool = False,
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
        self.transfers = transfers
        self.manager = manager
        self.charge_eviction = charge_eviction
        if manager is not None:
            assert transfers is not None, "a KV manager needs a host to load from"
            manager.attach(ReplicaStore(scheduler, transfers))
        self.requests: dict[str, StageRequest] = {}
        self.step_times = StepTimes()
        self.steps = 0
        self.vllm_ns = 0
        self.policy_ns = 0
        self.unscheduled_in_plan = 0
        self.truncated_blocks = 0
        self._in_flight: frozenset[str] = frozenset()
        self._inbox: list[tuple[str, Any]] = []
        self._waits: dict[str, int] = {}
        self._waited: set[str] = set()
        self._wakeup: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def load(self) -> int:
        """Requests at this replica, those included that it has yet to take in."""
        return len(self.requests) + sum(1 for verb, _ in self._inbox if verb == "add")

    @property
    def busy(self) -> bool:
        """Whether requests, transfers or anything else is under way."""
        if self.load or self._inbox:
            return True
        return self.transfers is not None and (
            self.transfers.next_s is not None
            or bool(self.scheduler.preloads.ids)
            or bool(self.scheduler.finished_req_ids)
        )

    def counters(self) -> list[Counter[str]]:
        """What is counted here, beside the loop's own measures: by the policy, and of the KV that outlives requests."""
        counters = [
            source.counters for source in (self.policy, self.manager, self.transfers) if source is not None
        ]
        if self.prefix_caching:
            counters += [self.scheduler.evictions.counters, Counter(truncated_blocks=self.truncated_blocks)]
        if self.scheduler.next_use is not None:
            counters.append(self.scheduler.next_use.counters)
        return counters

    def submit(self, request: StageRequest) -> None:
        request.arrive_s = self._loop.time()
        turn = request.reply.turn
        self.recorder.event(request.arrive_s, "arrive", turn.session, turn.turn, self.stage)
        self._inbox.append(("add", request))
        self.wake()

    def abort(self, request: StageRequest) -> None:
        """Cancel a request: at the end of the step, or with `abort_at_layer` at the next layer of the model."""
        self._inbox.append(("abort", request))
        if self.abort_at_layer:
            self.interrupt([request.id])
        self.wake()

    def heard(self, session: int, tokens: int) -> None:
        """Of a session's context its user knows only the first `tokens` tokens, after a barge-in: KV beyond them
        cannot be hit again and becomes free (LiveServe section 3)."""
        if self.prefix_caching:
            self._inbox.append(("heard", (session, tokens)))
            self.wake()

    def returning(self, session: int, history: list[int], features: Sequence[Any]) -> None:
        """The session's user speaks: a turn with this history is coming."""
        if self.manager is not None:
            self.scheduler.remember(session, history, features)
            self.manager.returning(session, self._loop.time())
            self.wake()

    def learnt(self, view: SessionView) -> None:
        """The monitor has learnt something of a session."""
        if self.manager is not None:
            self.manager.changed(view, self._loop.time())

    def forget(self, session: int) -> None:
        """The session has closed."""
        self.scheduler.forget(session)
        if self.manager is not None:
            self.manager.forget(session)
            self.wake()
        if any(verb == "add" and request.reply.turn.session == session for verb, request in self._inbox):
            self._inbox.append(("forget", session))  # what is taken in after it has closed is known again

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
            if self.manager is not None:
                self.manager.act(self._loop.time(), plan.urgent_short)
            if not self._can_run(plan) or not await self._step(plan):
                await self._sleep(self._next_s(plan))

    async def _step(self, plan: Plan) -> bool:
        """One round. False when vLLM could schedule nothing and learnt of nothing: the next round would be the same."""
        scheduler, start_s = self.scheduler, self._loop.time()
        chosen_s = scheduler.evictions.total_s
        clock = time.perf_counter_ns()
        scheduled = scheduler.schedule() if plan is STOCK else scheduler.schedule_with(plan)
        self.vllm_ns += time.perf_counter_ns() - clock
        rows = vllm.rows_of(scheduler, scheduled)
        begin_s = self._begin_transfers(scheduled, start_s)
        self._record_starts(rows, start_s)
        preempted = scheduled.preempted_req_ids or ()
        for request_id in preempted:
            turn = self.requests[request_id].reply.turn
            self.recorder.event(start_s, "preempt", turn.session, turn.turn, self.stage)
        if len(rows) < len(plan.order):
            self.unscheduled_in_plan += vllm.passed_over(scheduler, plan, rows)
        if self.charge_eviction:
            begin_s += scheduler.evictions.total_s - chosen_s
        if begin_s > start_s:
            await asyncio.sleep(begin_s - start_s)
        self._in_flight = frozenset(scheduled.num_scheduled_tokens)
        sampled = await self.device.execute(scheduled, rows, self.requests)
        self._in_flight = frozenset()
        end_s = self._loop.time()
        dropped = vllm.dropped(rows, sampled) if None in sampled else []
        withdrawn = scheduler.withdraw(scheduled, dropped)
        self._take_inbox([row for row in rows if row.samples and row.request_id not in dropped])
        arrived = None
        if self.transfers is not None:
            self.transfers.end(scheduled, withdrawn)
            arrived = self.transfers.finished(end_s)
        clock = time.perf_counter_ns()
        produced = vllm.finish_step(scheduler, scheduled, rows, sampled, arrived)
        self.vllm_ns += time.perf_counter_ns() - clock
        self.steps += 1
        self._record_step(start_s, end_s, rows, len(plan.held), len(preempted))
        if self.transfers is not None:
            self._take_arrived(self.transfers.arrived_s if arrived is not None else {}, end_s)
        self._deliver(produced, end_s)
        return bool(rows) or bool(preempted) or arrived is not None

    def _begin_transfers(self, scheduled: Any, now: float) -> float:
        """Start what the step loads; returns when its work can begin (s)."""
        if self.transfers is None:
            return now
        begin_s, loading = self.transfers.begin(self.scheduler, scheduled, now)
        for request_id in self.scheduler.deferred:
            request = self.requests.get(request_id)
            if request is None or request.started or request_id in self._waited:
                continue
            if request_id not in self._waits:
                self._kv_event("load_start", request, now)
            self._waits[request_id] = loading.get(request_id, self._waits.get(request_id, 0))
        return begin_s

    def _take_arrived(self, arrived_s: Mapping[str, float], now: float) -> None:
        """KV has come from the host: for requests that wait for it, and for what a manager has asked for early."""
        preloads = self.scheduler.preloads
        preloads.receive(arrived_s)
        for request_id, at_s in arrived_s.items():
            if request_id in self._waits:
                self._waited.add(request_id)
                self._kv_event("load_end", self.requests[request_id], at_s, self._waits[request_id])
        landed, preloads.landed = preloads.landed, []
        for session, blocks in landed:
            assert self.manager is not None
            self.manager.loaded(session, blocks, now)

    def _kv_event(self, kind: str, request: StageRequest, now: float, blocks: float = math.nan) -> None:
        turn = request.reply.turn
        self.recorder.event(now, kind, turn.session, turn.turn, self.stage, blocks)

    def _deliver(self, produced: Iterable[tuple[str, list[int], bool]], now: float) -> None:
        for request_id, token_ids, finished in produced:
            request = self.requests[request_id]
            turn, tokens = request.reply.turn, len(token_ids) * request.worth
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

        `sampled`: rows of the step that just ended with a token; that of an aborted request counts as generated.
        """
        if not self._inbox:
            return False
        inbox, self._inbox = self._inbox, []
        aborted = False
        for verb, request in inbox:
            if verb == "add":
                self._add(request)
            elif verb == "heard":
                self.truncated_blocks += self.scheduler.truncate(*request)
            elif verb == "forget":
                self.forget(request)
            elif self.requests.pop(request.id, None) is not None:
                self.scheduler.abort([request.id])
                self._waits.pop(request.id, None)
                self._waited.discard(request.id)
                request.produced += request.worth * sum(row.request_id == request.id for row in sampled)
                turn, now = request.reply.turn, self._loop.time()
                self.recorder.event(now, "abort", turn.session, turn.turn, self.stage, request.produced)
                aborted = True
        return aborted

    def _add(self, request: StageRequest) -> None:
        scheduler, session = self.scheduler, request.reply.turn.session
        self.requests[request.id] = request
        if self.manager is not None:
            self.manager.turn_arrived(session, self._loop.time())
        hashes, hash_blocks = (), None
        if self.prefix_caching:
            hashes = scheduler.remember(session, request.prompt, request.features)
            hash_blocks = scheduler.block_size
        made = vllm.make_request(
            request.id,
            request.prompt,
            request.max_tokens,
            request.arrive_s,
            hash_blocks,
            session,
            request.features,
            hashes,
        )
        if self.prefix_caching:
            scheduler.add_turn(session, made)
        else:
            scheduler.add_request(made)

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
        """Whether a round could do anything: compute, begin or end a transfer, or tell the connector who has gone."""
        if self.transfers is None:
            return len(self.requests) > len(plan.held)
        next_s, scheduler = self.transfers.next_s, self.scheduler
        if (next_s is not None and next_s <= self._loop.time()) or scheduler.finished_req_ids:
            return True
        if scheduler.preloads.offered:
            return True
        loading = scheduler.loading
        if not loading:
            return len(self.requests) > len(plan.held)
        return any(id not in plan.held and id not in loading for id in self.requests)

    def _next_s(self, plan: Plan) -> float | None:
        """When to look again although nothing has come in."""
        times = [plan.wake_s]
        if self.transfers is not None:
            times.append(self.transfers.next_s)
        if self.manager is not None:
            times.append(self.manager.wake_s)
        return min((at_s for at_s in times if at_s is not None), default=None)

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
                loaded = self._waits.pop(request.id, None)
                if loaded is not None and request.id not in self._waited:
                    self._kv_event(
                        "load_end", request, now, 0
                    )  # another's load has brought what it waited for
                self._waited.discard(request.id)
                if self.manager is not None:
                    self._record_preloaded(row, request, loaded or 0, now)
                    self.manager.turn_started(turn.session, now)

    def _record_preloaded(self, row: "vllm.Row", request: StageRequest, loaded: int, now: float) -> None:
        """How much of its history a turn found on the GPU because it was loaded early."""
        found = self.scheduler.block_ids(request.id)[: row.context // self.scheduler.block_size - loaded]
        blocks = self.scheduler.preloads.hit(request.reply.turn.session, found)
        if blocks:
            self._kv_event("preloaded", request, now, blocks)

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
        paused = scheduler.num_waiting_for_streaming_input
        self.recorder.step(
            start_s,
            end_s - start_s,
            self.stage,
            self.replica,
            len(rows),
            tokens,
            prefill,
            len(scheduler.running),
            len(scheduler.waiting) + len(scheduler.kv_holding_waiting) - paused,
            held + paused,
            allocatable - free if self.keeps_kv else 0,
            allocatable if self.keeps_kv else 0,
            preempted,
        )
