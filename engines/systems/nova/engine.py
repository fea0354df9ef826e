"""Nova's scheduling loop over one vLLM scheduler: passes of vision, prefill and decode, several of them at once.

vLLM schedules prefills and decodes as separate steps, with the requests of other stages held, and has as many of them
under way as pipeline parallelism would. Vision comes before it: a request waits in vLLM's queue until its image has
been encoded. A rule, Nova's or a baseline's, decides which passes run at the same time, and on what share of the GPU.
It is asked after each arrival and each end. Within a stage requests go in order of arrival. Vision and prefill take one
request at a time, decode takes all of its requests.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from engines.core.device import Row
from engines.core.engine import StageEngine, sleep_until
from engines.core.policy import Plan, RequestView, StageView
from engines.core.recorder import StepLog
from engines.core.stage import ENTRY, Stage
from engines.core.step_cost import StepWork
from engines.devices.extensions import SmShare
from engines.devices.stage import VirtualStage
from engines.systems.nova.nova_params import ChunkParams, PartitionParams, StreamParams, TurnParams
from engines.systems.nova.partition import decode_sms, profile
from engines.systems.nova.vision import VisionPasses
from workloads.errors import UserError

VISION, PREFILL, DECODE = STAGES = ("vision", "prefill", "decode")

UnderWay = Mapping[str, Sequence[str]]
"""Stage -> requests of its pass."""
Passes = Iterator[tuple[str, Sequence[str]]]


class Queues:
    """The requests at each stage, in the order of their arrival there."""

    def __init__(self) -> None:
        self.at: dict[str, str] = {}

    def see(self, requests: Mapping[str, Any]) -> None:
        if self.at.keys() != requests.keys():
            self.at = {
                id: self.at.get(id) or (VISION if request.work.image_tokens else PREFILL)
                for id, request in requests.items()
            }

    def of(self, stage: str) -> list[str]:
        """Return the requests at a stage, waiting or in its pass."""
        return [id for id, at in self.at.items() if at == stage]

    @property
    def pending(self) -> int:
        """Requests in vision or prefill, waiting or running: m."""
        return sum(at != DECODE for at in self.at.values())


class Rule(Protocol):
    """The base of rules. The record keeps `counters`. `divides`: stages at the same time have shares of the SMs.
    `repartition_s`: seconds before each pass until its worker has its share (section V-G)."""

    counters: Counter[str]
    divides: bool
    repartition_s: float

    def prepare(self, device: VirtualStage) -> None:
        """Prepare before anything is served. UserError if the device does not suit the rule."""

    def next(self, queues: Queues, under_way: UnderWay) -> Passes:
        """Yield the passes that begin now; each must be in `under_way` before the next is taken."""
        ...

    def sms(self, stage: str, queues: Queues, under_way: UnderWay) -> float | None:
        """Return the share of a pass that begins now; None: the streams decide it."""


def front(queues: Queues) -> tuple[str, list[str]] | None:
    """Return the next pass of vision or prefill: the prefill of encoded images goes before any vision."""
    for stage in (PREFILL, VISION):
        waiting = queues.of(stage)
        if waiting:
            return stage, waiting[:1]
    return None


class Partition:
    """Nova: decode at the same time as vision or prefill, which follow one another, on shares of the SMs.

    Decode joins within an iteration; a share that is decided during a pass takes effect with the next one. Each has the
    whole GPU if the other has no work.
    """

    divides = True

    def __init__(self, params: PartitionParams) -> None:
        self.params = params
        self.repartition_s = params.repartition_s
        self.counters: Counter[str] = Counter()
        self._sms = 0
        self._default: dict[str, int] = {}

    def prepare(self, device: VirtualStage) -> None:
        params, self._sms = self.params, device.gpu.facts.sms
        given = {VISION: params.decode_sms_vision, PREFILL: params.decode_sms_prefill}
        for name, sms in (("least_decode_sms", params.least_decode_sms), *given.items()):
            if sms is not None and sms >= self._sms:
                name = name if name.startswith("least") else f"decode_sms_{name}"
                raise UserError(f"{name}={sms} leaves none of the {self._sms} SMs to other stages; set less.")
        searched = profile(device, params.least_decode_sms).search(params.mean_output_tokens, params.rho_weighting)
        for (stage, sms), best in zip(given.items(), searched, strict=True):
            self._default[stage] = best if sms is None else sms
            self.counters[f"decode_sms_{stage}"] = self._default[stage]

    def next(self, queues: Queues, under_way: UnderWay) -> Passes:
        if DECODE not in under_way and (decodes := queues.of(DECODE)):
            yield DECODE, decodes
        if VISION not in under_way and PREFILL not in under_way and (front_pass := front(queues)):
            yield front_pass

    def sms(self, stage: str, queues: Queues, under_way: UnderWay) -> float:
        other = next((front_stage for front_stage in (VISION, PREFILL) if front_stage in under_way), None)
        if stage != DECODE:
            return self._sms - self.of_decode(stage, queues) if queues.of(DECODE) else self._sms
        if other is None and (front_pass := front(queues)):
            other = front_pass[0]  # begins together with this pass
        return self._sms if other is None else self.of_decode(other, queues)

    def of_decode(self, other: str, queues: Queues) -> int:
        """Return the SMs of decode next to one of the others."""
        params, default = self.params, self._default[other]
        if not params.adaptive:
            return default
        alpha = params.alpha_vision if other == VISION else params.alpha_prefill
        return decode_sms(queues.pending, default, min(default, params.least_decode_sms), alpha)


class Streams:
    """Multi-Stream: all three stages at once on plain streams, one pass of each at a time."""

    divides = False
    repartition_s = 0.0

    def __init__(self, params: StreamParams) -> None:
        self.counters: Counter[str] = Counter()

    def prepare(self, device: VirtualStage) -> None: ...

    def next(self, queues: Queues, under_way: UnderWay) -> Passes:
        for stage in (DECODE, PREFILL, VISION):
            waiting = queues.of(stage)
            if waiting and stage not in under_way:
                yield stage, waiting if stage == DECODE else waiting[:1]

    def sms(self, stage: str, queues: Queues, under_way: UnderWay) -> None:
        return None


class Turns:
    """PF-Limit: one pass at a time on the whole GPU. Vision and prefill go first until enough decodes wait."""

    divides = False
    repartition_s = 0.0

    def __init__(self, params: TurnParams) -> None:
        self.params = params
        self.counters: Counter[str] = Counter()
        self._sms = 0
        self._draining: set[str] = set()

    def prepare(self, device: VirtualStage) -> None:
        self._sms = device.gpu.facts.sms

    def next(self, queues: Queues, under_way: UnderWay) -> Passes:
        if under_way:
            return
        decodes, front_pass = queues.of(DECODE), front(queues)
        self._draining &= set(decodes)
        if not self._draining and (len(decodes) >= self.params.decode_threshold or front_pass is None):
            self._draining = set(decodes)
        if self._draining:
            yield DECODE, decodes
            if self.params.decode_quantum == "iteration":
                self._draining.clear()
        elif front_pass:
            yield front_pass

    def sms(self, stage: str, queues: Queues, under_way: UnderWay) -> float:
        return self._sms


class Chunked:
    """Nova's baseline Chunk, an `engines.core.policy.Policy`: vLLM's own chunked prefill with a small budget. An image
    is encoded within the step that begins its prompt, which all decodes of that step wait for."""

    def __init__(self, params: ChunkParams) -> None:
        self.params = params
        self.counters: Counter[str] = Counter()

    def plan(self, view: StageView[RequestView]) -> Plan:
        """Plan vLLM's own order, in small steps."""
        return Plan(step_budget=self.params.chunk_tokens)


def chunked(stage: str, params: ChunkParams) -> Chunked | None:
    """Return the policy of the entry stage; None for later stages."""
    return Chunked(params) if stage == ENTRY else None


class PassEngine(StageEngine):
    """Drives one replica of a vision model's decoder, under one of the rules.

    Each stage has a worker, which runs one pass at a time. A worker takes on its share when its pass begins.
    """

    def __init__(self, rule: Rule, *args: Any) -> None:
        super().__init__(*args)
        first = self.device
        if not isinstance(first, VirtualStage) or first.step_time is not None:
            raise UserError("shares of SMs are for a modelled GPU without a measured profile; set device=virtual.")
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
            next_pass = next(passes, None)
            self.policy_ns += time.perf_counter_ns() - clock
            if next_pass is None:
                return
            yield next_pass

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

    async def _repartition(self) -> None:
        """Wait until the worker has its share: within the pass, on the CPU, while other stages compute."""
        if self.rule.repartition_s:
            await asyncio.sleep(self.rule.repartition_s)

    async def _see(self, request_id: str) -> None:
        worker, request, start_s = self.vision.worker, self.requests[request_id], self._loop.time()
        row = Row(request_id, request.work.image_tokens, 0, False)
        self.table.record_starts([row], start_s)
        await self._repartition()
        await self.vision.encode(row.tokens)
        self._log(VISION, start_s, [row], row.tokens, worker.sms)
        request.work = replace(request.work, image_tokens=0)  # the prefill finds it encoded
        self._end(VISION, {request_id: PREFILL})

    async def _compute(self, stage: str, worker: VirtualStage, scheduled: Any, rows: list[Row]) -> None:
        requests = {row.request_id: self.requests[row.request_id] for row in rows}
        start_s = self._loop.time()
        await self._repartition()
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

    def _log(self, stage: str, start_s: float, rows: Sequence[Row], tokens: int, sms: float | None = None) -> None:
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
