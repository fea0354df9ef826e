"""Nova's scheduling loop over one vLLM scheduler: passes of vision, prefill and decode, several of them at once.

vLLM schedules prefills and decodes as separate steps, with the requests of other stages held, and has as many of them
under way as pipeline parallelism would. Vision comes before it: a request waits in vLLM's queue until its image has
been encoded. The rule (`engines.systems.nova.rules`) decides which passes run at the same time, and on what share of
the GPU.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from engines.core.device import Row
from engines.core.engine import StageEngine, sleep_until
from engines.core.policy import Plan
from engines.core.recorder import StepLog
from engines.core.stage import ENTRY, Stage
from engines.core.step_cost import StepWork
from engines.devices.extensions import SmShare
from engines.devices.stage import VirtualStage
from engines.systems.nova.nova_params import StreamParams
from engines.systems.nova.rules import (
    DECODE,
    PREFILL,
    STAGES,
    VISION,
    Partition,
    Passes,
    Queues,
    Rule,
    Streams,
    Turns,
)
from engines.systems.nova.vision import VisionPasses
from workloads.errors import UserError


class PassEngine(StageEngine):
    """Drives one replica of a vision model's decoder, under one of the rules.

    Each stage has a worker, which runs one pass at a time. A worker takes on its share when its pass begins.
    """

    def __init__(self, rule: Rule, *args: Any) -> None:
        super().__init__(*args)
        first = self.device
        if not isinstance(first, VirtualStage) or first.step_time is not None:
            raise UserError(
                "shares of SMs are for a modelled GPU without a measured profile; set device=virtual."
            )
        if self.traffic is not None or self.manager is not None:
            raise UserError("passes side by side take no KV to host memory; set kv=lru.")
        self.rule = rule
        self.queues = Queues()
        self.under_way: dict[str, tuple[str, ...]] = {}
        """Stage -> the requests of the pass under way there."""
        self.workers = {VISION: first.worker(), PREFILL: first.worker(), DECODE: first}
        self.vision = VisionPasses(self.workers[VISION], self.replica.stage)
        self.logs = {stage: StepLog(self.replica, self.recorder, stage) for stage in STAGES}
        self.counted: Counter[str] = Counter()
        rule.prepare(first)
        if rule.divides:
            self.recorder.divide()

    def counters(self) -> list[Counter[str]]:
        """Return the counts of the passes of each stage, the rule's counters and the rest."""
        return [*super().counters(), self.counted, self.rule.counters]

    async def serve(self) -> None:
        """Run for ever: the loop of Algorithm 1."""
        async with asyncio.TaskGroup() as passes:
            while True:
                if self.take_in():
                    self._log(DECODE, self._loop.time(), (), 0)  # blocks have become free
                self.queues.see(self.requests)
                for stage, ids in self._timed(self.rule.next(self.queues, self.under_way)):
                    self._begin(stage, ids, passes)
                await sleep_until(None, [self])

    def _timed(self, passes: Passes) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield the passes of a rule. The time that the rule takes counts as the policy's."""
        while True:
            clock = time.perf_counter_ns()
            found = next(passes, None)
            self.policy_ns += time.perf_counter_ns() - clock
            if found is None:
                return
            yield found

    def _begin(self, stage: str, ids: Sequence[str], passes: asyncio.TaskGroup) -> None:
        """Begin one pass of `stage` for these requests, with the worker's present share."""
        worker = self.workers[stage]
        worker.sms = self.rule.sms(stage, self.queues, self.under_way)
        if stage == VISION:
            (request_id,) = ids
            work = self._see(request_id)
        else:
            scheduled, rows = self._schedule(ids)
            if not rows:
                return  # no blocks for it: the loop looks again when a pass has ended
            ids = tuple(row.request_id for row in rows)
            work = self._compute(stage, worker, scheduled, rows)
        self.under_way[stage] = tuple(ids)
        self.counted[f"{stage}_passes"] += 1
        passes.create_task(work)

    def _schedule(self, ids: Sequence[str]) -> tuple[Any, list[Row]]:
        plan = Plan(held=frozenset(self.requests.keys() - set(ids)))
        scheduled, rows = self.schedule(plan)
        now = self._loop.time()
        preempted = scheduled.preempted_req_ids or () if scheduled is not None else ()
        self.record_preempted(preempted, now)
        self.queues.at |= dict.fromkeys(preempted, PREFILL)  # encoded images stay encoded
        if not rows and scheduled is not None:
            self.update(scheduled, rows, [], None)
        self.table.record_starts(rows, now)
        return scheduled, rows

    async def _see(self, request_id: str) -> None:
        worker, request, start_s = self.vision.worker, self.requests[request_id], self._loop.time()
        row = Row(request_id, request.image_tokens, 0, False)
        self.table.record_starts([row], start_s)
        await self.vision.encode(request.image_tokens)
        self._log(VISION, start_s, [row], row.tokens, worker.sms)
        request.image_tokens = 0  # the prefill finds it encoded
        self._end(VISION, {request_id: PREFILL})

    async def _compute(self, stage: str, worker: VirtualStage, scheduled: Any, rows: list[Row]) -> None:
        requests = {row.request_id: self.requests[row.request_id] for row in rows}
        start_s = self._loop.time()
        sampled = await worker.execute(scheduled, rows, requests)
        produced = [each for each in self.update(scheduled, rows, sampled, None) if each[0] in self.requests]
        self.steps += 1
        self._log(stage, start_s, rows, sum([row.tokens for row in rows]), worker.sms)
        self.output.deliver(produced, self.requests, self._loop.time())
        self._end(stage, {row.request_id: DECODE for row in rows if row.samples})

    def _end(self, stage: str, moved: dict[str, str]) -> None:
        """End a pass; the `moved` requests that still exist are at other stages from now on."""
        del self.under_way[stage]
        self.queues.at |= {id: to for id, to in moved.items() if id in self.requests}
        self.wake()

    def _log(
        self, stage: str, start_s: float, rows: Sequence[Row], tokens: int, sms: float | None = None
    ) -> None:
        given = math.nan if sms is None else sms
        self.logs[stage].record(start_s, self._loop.time(), StepWork.of_rows(rows), tokens, sms=given)


RULES: Mapping[str, Callable[[Any], Rule]] = {"nova": Partition, "multi_stream": Streams, "pf_limit": Turns}


def loop(scheduler: str, stage: str, params: StreamParams) -> Callable[..., StageEngine] | None:
    """Return the engine that drives a replica of the entry stage; None for other stages."""
    return partial(PassEngine, RULES[scheduler](params)) if stage == ENTRY else None


def as_shared(scheduler: str, stage: Stage, params: StreamParams) -> Stage:
    """Return the stage on a GPU whose SMs are shared. UserError for a decoder without vision."""
    if stage.decoder.vision_encoder is None:
        raise UserError(
            f"scheduler={scheduler} runs vision along with decode, and the {stage.name} of this deployment has no "
            "vision encoder; set deployment=cogagent_a6000 or another that has."
        )
    return stage.extended(SmShare(1.0))
