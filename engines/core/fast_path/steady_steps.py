"""Steady steps: steps with the same rows as the step before, each a token further, under an equal plan.

A device callback at the end of each begins the next one, so the engine's task does not run. If nothing has arrived
either, unchanged values are not computed again. Of 24,905 steps (128 callers, stock, two GPUs) 54 % have the rows of
the step before. 20 % repeat it, all of the talker: the thinker's replicas copy KV to the host. CPU time × 0.89 with 128
callers, × 1.04 with 16.
"""

import asyncio
from collections.abc import Sequence

from engines.core.device import CallbackDevice, Row
from engines.core.engine import StageEngine
from engines.core.fast_path.decode_batch import Produced
from engines.core.policy import DEFAULT_PLAN, Plan
from engines.core.step import SchedulerStep
from engines.core.step_cost import StepWork
from engines.core.vllm_adapter.scheduler_path import Sampled
from engines.core.vllm_adapter.scheduling import StageScheduler
from engines.core.vllm_adapter.simple_decode import SimpleDecode


class SteadyRows:
    """The rows of steady steps. `left`: number of further steps in which all of them are simple decodes. Only replicas
    that sum no rows have any."""

    def __init__(self, scheduler: StageScheduler) -> None:
        self.left = 0
        self._scheduler = scheduler
        self._decodes: Sequence[SimpleDecode] = ()
        self._plan = DEFAULT_PLAN

    def start(self, decodes: Sequence[SimpleDecode], plan: Plan) -> None:
        """Start from a scheduled step of these rows alone, under `plan`."""
        self._decodes, self._plan = decodes, plan
        self.left = max(0, min([decode.until - decode.row.context for decode in decodes]) - 1)

    def clear(self) -> None:
        """Forget the rows: one of them has left, or may have."""
        self._decodes, self.left = (), 0

    def continues(self, plan: Plan) -> bool:
        """Return True if the next step is steady: the plan is equal, and vLLM has nothing else to look at."""
        if not self.left or (plan is not self._plan and plan != self._plan):
            return False
        return not self._scheduler.would_look(plan)

    def next(self, plan: Plan) -> list[Row] | None:
        """Return the rows of the next step; None if it is not steady."""
        if not self.continues(plan):
            return None
        self.left -= 1
        return [decode.row for decode in self._decodes]

    def advance(self, sampled: Sampled) -> list[Produced]:
        """Note the tokens of a step whose rows all sampled one; returns the new products."""
        produced: list[Produced] = []
        for decode, ids in zip(self._decodes, sampled, strict=True):
            assert ids is not None
            decode.unsynced += ids
            row = decode.row
            decode.row = Row(row.request_id, 1, row.context + 1, True)
            produced.append((row.request_id, ids, False))
        return produced


class SteadySteps:
    """Runs the steady steps of an engine on its device.

    The engine schedules and finishes the first of them, as any step. A step that repeats it, without any arrival since,
    differs only in time and context.
    """

    def __init__(self, engine: StageEngine, rows: SteadyRows, device: CallbackDevice) -> None:
        self._engine = engine
        self._rows = rows
        self._device = device
        self._step: SchedulerStep
        self._repeats = False
        self._over: asyncio.Future[Plan] | None = None
        self._loop = asyncio.get_running_loop()

    async def run(self, plan: Plan) -> Plan:
        """Run all steady steps from here on, the next one under `plan`; returns the plan of the first other step."""
        self._repeats = False
        if not self._begin(plan):
            return plan
        self._over = self._loop.create_future()
        return await self._over

    def _begin(self, plan: Plan) -> bool:
        """Begin the next step; False if it is not steady."""
        engine = self._engine
        if not engine.can_run(plan):
            return False
        if self._repeats:
            rows = self._rows.next(plan)
            if rows is None:
                return False
            step = engine.current_step = self._step
            step.rows, step.start_s = rows, self._loop.time()
            engine.unscheduled_in_plan += step.passed_over
            engine.open_next_inbox()
            self._device.repeat(rows)
            return True
        if not self._rows.continues(plan):
            return False
        step = self._step = engine.current_step = engine.schedule_step(plan)
        self._device.start(step.rows, engine.requests, self._ended)
        return True

    def _ended(self, sampled: Sampled) -> None:
        over, engine = self._over, self._engine
        assert over is not None
        if over.done():  # the engine's task was cancelled
            return
        try:
            if self._repeats and not engine.has_arrivals and None not in sampled and engine.traffic is None:
                self._finish_repeated(sampled)
            else:
                engine.finish_step(self._step, sampled)
            self._repeats = not engine.has_arrivals
            plan = engine.poll_and_plan()
            goes_on = self._begin(plan)
        except Exception as error:
            if over.done():
                raise
            over.set_exception(error)
            return
        if not goes_on and not over.done():  # a listener may have cancelled the task when it got a token
            over.set_result(plan)

    def _finish_repeated(self, sampled: Sampled) -> None:
        """Finish a step as `StageEngine.finish_step` does, without the parts that a repeated step cannot change."""
        engine, step, end_s = self._engine, self._step, self._loop.time()
        engine.current_step = None
        engine.steps += 1
        produced = self._rows.advance(sampled)
        if engine.policy is not None:
            context = sum([row.context for row in step.rows])
            engine.step_cost.add(StepWork(len(step.rows), 0, context), end_s - step.start_s)
        engine.output.steps.repeat(step.start_s, end_s)
        engine.output.deliver(produced, engine.requests, end_s)
