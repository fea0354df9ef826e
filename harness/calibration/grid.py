"""Measure steps of one stage on a grid of decode batch, context and prefill tokens, through the engine's own loop.

A policy decides each round, so a step's time is what the loop takes from one plan to the next: scheduling, hand-over,
forward, sampling, update and delivery of the tokens, without the thinking of the policy itself. Contexts are set up
with the forward left out, since what the KV cache holds does not change how long it takes to read.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engines.build import Server
from engines.core.device import Device, Row
from engines.core.loop import StageEngine
from engines.core.policy import Plan, RequestView, StageView
from engines.core.request import Progress, Reply, StageRequest
from engines.devices.profile import Reaction
from engines.devices.step_time import totals
from harness.calibration.fit import Sample
from workloads.trace import Turn

SHORTEST = 32
"""Tokens of the shortest context of a decode, and of the smallest prefill chunk a quarter of it."""

GROWTH = 64
"""Tokens that a decode may grow by while the points of its group are measured."""

IN_A_ROW = 3
"""Steps measured one after the other where the batch only decodes."""

POOL_SHARE = 0.9
"""Of the KV pool that a cell may fill: nothing is preempted while it is measured."""

TRIES = 40
"""Interruptions tried for each shape of step."""

Script = Generator[Plan, StageView, StageView]
"""Yields what each round is to do and receives what it sees next."""


@dataclass(frozen=True)
class Group:
    """Decodes that stay while prefill chunks come and go. ``context``: tokens each decode has on average."""

    decodes: int
    context: int


@dataclass(frozen=True)
class Chunk:
    """A prefill of ``tokens`` on top of ``cached`` ones; ``ends``: it is the prompt's last and samples a token."""

    tokens: int
    cached: int
    ends: bool


Cell = tuple[Group, Chunk | None]


@dataclass(frozen=True)
class Limits:
    """What bounds the grid: seats, tokens of a step, of a request and of the KV pool."""

    seats: int
    step_tokens: int
    request_tokens: int
    pool_tokens: int


def limits_of(engine: StageEngine, max_model_len: int) -> Limits:
    scheduler = engine.scheduler
    return Limits(
        scheduler.max_num_active_reqs,
        scheduler.max_num_scheduled_tokens,
        max_model_len,
        int(POOL_SHARE * scheduler.allocatable_blocks * scheduler.block_size),
    )


def grid(limits: Limits, quick: bool = False) -> dict[Group, list[Chunk | None]]:
    """Groups of decodes, none among them, each with the chunks that are added to it; None: decodes alone.

    Batches double up to the last seat but one, contexts and chunks grow geometrically. Every group meets each size of
    chunk once; how much of its prompt is cached already, and whether it ends, changes from group to group.
    """
    longest = int((limits.request_tokens - GROWTH) / 1.25)
    batches = _geometric(1, limits.seats - 1, 4 if quick else 2)
    contexts = _geometric(SHORTEST, max(SHORTEST, longest), (longest / SHORTEST) ** (1 / (2 if quick else 3)))
    groups = [Group(0, 0)] + [
        Group(decodes, context)
        for decodes, context in itertools.product(batches, contexts)
        if decodes * (1.25 * context + GROWTH) <= limits.pool_tokens
    ]
    found: dict[Group, list[Chunk | None]] = {}
    for index, group in enumerate(groups):
        room = min(limits.step_tokens - group.decodes, limits.request_tokens // 2)
        sizes = _geometric(SHORTEST // 4, room, 5 if quick else 2.5)
        left = limits.pool_tokens - group.decodes * (1.25 * group.context + GROWTH)
        chunks: list[Chunk | None] = [None] if group.decodes else []
        for position, tokens in enumerate(sizes):
            most = int(min(limits.request_tokens - tokens - 8, left - tokens - 64))
            if most < 0:
                continue
            cached = (0, most // 8, most // 2, 0, most)[(index + position) % 5]
            chunks.append(Chunk(tokens, cached, ends=bool((index + position) % 2)))
        found[group] = chunks
    return found


class Tap:
    """A device that remembers the last step it ran."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.rows: Sequence[Row] = ()
        self.ended_s = 0.0
        self.dropped = False
        self._loop = asyncio.get_running_loop()

    async def execute(
        self, scheduled: Any, rows: Sequence[Row], requests: Mapping[str, StageRequest]
    ) -> list[list[int] | None]:
        self.rows = rows
        sampled = await self.device.execute(scheduled, rows, requests)
        self.ended_s = self._loop.time()
        self.dropped = any(tokens is None for tokens in sampled)
        return sampled

    def interrupt(self, request_ids: frozenset[str]) -> None:
        self.device.interrupt(request_ids)


class _Nobody:
    """A client that does nothing with what it receives."""

    def text(self, turn: int, tokens: int, at_s: float) -> None: ...

    def audio(self, turn: int, audio_s: float) -> None: ...

    def reply_done(self, turn: int) -> None: ...


class GridPolicy:
    """Drives one engine over the grid; ``samples`` grows, ``finished`` is set at the end.

    ``skip(True)`` leaves the forward out of the steps that follow. ``canary()`` runs the canary kernel and returns its
    seconds. ``show()`` is called after each group.
    """

    def __init__(
        self,
        server: Server,
        engine: StageEngine,
        skip: Callable[[bool], None],
        canary: Callable[[], float],
        show: Callable[[], None],
        seed: int,
    ) -> None:
        self.counters: Counter[str] = Counter()
        self.samples: list[Sample] = []
        self.finished = asyncio.Event()
        self._server = server
        self._engine = engine
        self._tap = Tap(engine.device)
        self._skip = skip
        self._canary = canary
        self._show = show
        self._rng = np.random.default_rng(seed)
        self._loop = asyncio.get_running_loop()
        self._sessions = itertools.count()
        self._script: Script | None = None
        self._planned_s = 0.0
        self._elapsed_s = 0.0

    def plan(self, view: StageView) -> Plan:
        self._elapsed_s = view.now - self._planned_s
        assert self._script is not None
        try:
            plan = self._script.send(view)
        except StopIteration:
            self._script = None
            self.finished.set()
            plan = _nothing(view)
        self._planned_s = self._loop.time()
        return plan

    async def run(self, script: Script) -> None:
        """Take ``script`` to its end on the engine, which must be serving nobody else."""
        engine = self._engine
        engine.device, engine.policy = self._tap, self
        self.finished.clear()
        keeper = self._request(SHORTEST)  # never runs: the loop asks a policy only while there is a request
        next(script)
        self._script = script
        engine.submit(keeper)
        serving = asyncio.create_task(engine.serve(), name=f"grid {engine.stage}")
        ended = asyncio.create_task(self.finished.wait())
        done, _ = await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if serving in done:
            serving.result()  # it has failed: it never ends otherwise
        engine.abort(keeper)
        while engine.load:
            await asyncio.sleep(0.001)
        serving.cancel()
        engine.device = self._tap.device

    def measure(self, cells: Mapping[Group, Sequence[Chunk | None]], repeats: int, until_s: float) -> Script:
        """Every cell ``repeats`` times in a new order each time; past ``until_s`` (loop time) no group begins."""
        view = yield Plan()
        for _ in range(repeats):
            for index in self._rng.permutation(len(cells)).tolist():
                if self._loop.time() > until_s:
                    self.counters["groups_left_out"] += 1
                    continue
                group = list(cells)[index]
                view = yield from self._group(view, group, cells[group])
                self._show()
        return view

    def _group(self, view: StageView, group: Group, chunks: Sequence[Chunk | None]) -> Script:
        decodes = [self._request(self._near(group.context)) for _ in range(group.decodes or 1)]
        running = {request.id for request in decodes}
        for request in decodes:
            self._engine.submit(request)
        view = yield _nothing(view)
        self._skip(True)
        while any(v.computed < v.tokens - 1 or not v.running for v in _of(view, running)):
            view = yield _only(view, running)
        for index in self._rng.permutation(len(chunks)).tolist():
            chunk = chunks[index]
            canary_s = self._canary()
            if chunk is None:
                self._skip(False)
                view = yield _only(view, running)  # to settle
                for _ in range(IN_A_ROW):
                    view = yield _only(view, running)
                    self._keep((group, None), canary_s, len(running))
            else:
                view = yield from self._chunk(view, group, chunk, running, canary_s)
        for request in decodes:
            self._engine.abort(request)
        view = yield _nothing(view)
        return view

    def _chunk(
        self, view: StageView, group: Group, chunk: Chunk, running: set[str], canary_s: float
    ) -> Script:
        """Bring a prompt to its context, let one step settle, then measure the chunk on top of the decodes."""
        request = self._request(chunk.cached + chunk.tokens + (0 if chunk.ends else 4))
        self._engine.submit(request)
        view = yield _nothing(view)
        both = running | {request.id}
        self._skip(True)
        while (missing := chunk.cached - 1 - _of(view, {request.id})[0].computed) > 0:
            view = yield _only(view, {request.id}, {request.id: missing})
        self._skip(False)
        view = yield _only(view, both, {request.id: 1}) if chunk.cached else _only(view, running)
        measured = both if group.decodes else {request.id}
        view = yield _only(view, measured, {request.id: chunk.tokens})
        self._keep((group, chunk), canary_s, len(measured), chunk.tokens)
        self._engine.abort(request)
        view = yield _nothing(view)
        return view

    def _keep(self, cell: Cell, canary_s: float, requests: int, prefill: int = 0) -> None:
        """The step that has just ended, if it was what the plan said."""
        total = totals(self._tap.rows)
        if total.requests != requests or total.tokens != (requests + prefill - 1 if prefill else requests):
            self.counters["steps_not_as_planned"] += 1
            return
        self.samples.append(Sample(cell, total, self._elapsed_s, self._loop.time(), canary_s))

    def react(self, shapes: Sequence[Cell], layers: int, into: list[Reaction], tries: int = TRIES) -> Script:
        """Interrupt steps of each shape at random times; how long they took to end goes ``into``.

        A layer's time is what a step takes beyond one without the forward, over the layers.
        """
        view = yield Plan()
        for group, chunk in shapes:
            decodes = [self._request(self._near(group.context)) for _ in range(group.decodes)]
            running = {request.id for request in decodes}
            for request in decodes:
                self._engine.submit(request)
            view = yield _nothing(view)
            self._skip(True)
            while any(v.computed < v.tokens - 1 or not v.running for v in _of(view, running)):
                view = yield _only(view, running)
            whole: list[float] = []
            without: list[float] = []
            reactions: list[float] = []
            ran_out = 0
            for attempt in range(tries + 2 * IN_A_ROW):
                request = self._request(chunk.tokens + 4) if chunk else None
                ids = running | {request.id} if request else running
                if request:
                    self._engine.submit(request)
                    view = yield _nothing(view)
                self._skip(False)
                if running:
                    view = yield _only(view, running)  # to settle
                self._skip(attempt < IN_A_ROW)
                caps = {request.id: chunk.tokens} if request and chunk else {}
                if attempt < 2 * IN_A_ROW:
                    view = yield _only(view, ids, caps)
                    (without if attempt < IN_A_ROW else whole).append(self._elapsed_s)
                else:
                    flagged: list[float] = []
                    delay_s = float(self._rng.uniform(0, np.median(whole)))
                    timer = self._loop.call_later(delay_s, self._interrupt, frozenset(ids), flagged)
                    view = yield _only(view, ids, caps)
                    timer.cancel()
                    if flagged and self._tap.dropped:
                        reactions.append(self._tap.ended_s - flagged[0])
                    else:
                        ran_out += 1
                if request:
                    self._engine.abort(request)
                    view = yield _nothing(view)
            step_s = float(np.median(whole))
            if reactions:
                median_s, p90_s = np.quantile(reactions, [0.5, 0.9]).tolist()
                layer_s = max(0.0, step_s - float(np.median(without))) / layers
                into.append(
                    Reaction(
                        shape=_name(group, chunk),
                        step_s=round(step_s, 6),
                        layer_s=round(layer_s, 6),
                        median_s=round(median_s, 6),
                        p90_s=round(p90_s, 6),
                        interrupted=len(reactions),
                        ran_out=ran_out,
                    )
                )
            for request in decodes:
                self._engine.abort(request)
            view = yield _nothing(view)
        return view

    def _interrupt(self, ids: frozenset[str], flagged: list[float]) -> None:
        flagged.append(self._loop.time())
        self._engine.interrupt(ids)

    def _near(self, context: int) -> int:
        """A prompt's length around ``context``: requests of one batch differ, as they do in a real one."""
        return max(1, int(context * self._rng.uniform(0.75, 1.25))) if context else SHORTEST

    def _request(self, tokens: int) -> StageRequest:
        """A request of somebody who only receives, with a prompt that no other one shares."""
        engine, session = self._engine, next(self._sessions)
        self._server.gateway.open(session, _Nobody())
        turn = Turn(session, 0, 0.0, "text", tokens, None, GROWTH, None, None, None, None, 0.0)
        prompt = self._rng.integers(1, self._vocab, tokens).tolist()
        # No frame ends a chunk, and the text that a talker waits for has ended.
        reply = Reply(turn, prompt, tokens, 0, 0, 0, Progress(False, 1 << 30))
        request = StageRequest(engine.stage, reply, prompt, GROWTH + SHORTEST)
        reply.live[engine.stage] = (engine, request)
        return request

    @property
    def _vocab(self) -> int:
        return self._server.gateway.deployment.model.stages[self._engine.stage].vocab


def reaction_shapes(limits: Limits) -> list[Cell]:
    """A small and a large batch of decodes, and a prefill chunk among some."""
    many = max(2, limits.seats // 2)
    context = min(256, (limits.request_tokens - GROWTH) // 2)
    chunk = Chunk(min(limits.step_tokens - 4, limits.request_tokens // 2, 512), 0, ends=False)
    return [(Group(1, context), None), (Group(many, context), None), (Group(2, context), chunk)]


def _name(group: Group, chunk: Chunk | None) -> str:
    decodes = f"{group.decodes} decode{'s' if group.decodes != 1 else ''} at {group.context} tokens"
    return decodes if chunk is None else f"{decodes} and {chunk.tokens} prefill tokens"


def _geometric(first: int, last: int, ratio: float) -> list[int]:
    """Whole numbers from ``first`` to ``last``, each about ``ratio`` times the one before."""
    if last < first:
        return []
    steps = max(1, round(np.log(last / first) / np.log(ratio))) if last > first else 0
    return sorted({round(first * (last / first) ** (i / max(1, steps))) for i in range(steps + 1)})


def _of(view: StageView, ids: set[str]) -> list[RequestView]:
    return [request for request in view.requests if request.id in ids]


def _only(view: StageView, ids: set[str], caps: Mapping[str, int] | None = None) -> Plan:
    """Run these requests and no others."""
    return Plan(held=frozenset(request.id for request in view.requests) - ids, caps=caps or {})


def _nothing(view: StageView) -> Plan:
    """Run nobody; what was submitted or aborted is taken in, and the next plan is asked for."""
    return _only(view, set())
