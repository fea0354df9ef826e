"""Measure the steps of a grid, decode batches with prefill chunks, in a new order at each repetition, and the time from
an interruption to the end of its step.

Every round of one engine is decided by a script: which requests run, and with how many tokens. The script is a policy
to the engine's own loop, so a round's time is what the loop takes from one plan to the next: scheduling, hand-over,
forward, sampling, update and delivery of the tokens, without the thinking of the policy itself.

Contexts are set up with the forward left out, since what the KV cache holds does not change how long it takes to read.
A canary runs before each cell, and one step settles before a measured one: it brings back the batch and the caches that
the step before it would have left.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import numpy as np

from engines.builder import Serving
from engines.core.device import Device, Row
from engines.core.engine import StageEngine
from engines.core.policy import Plan, RequestView, StageView
from engines.core.request import StageRequest
from engines.devices.profile import Reaction
from engines.devices.step_time import totals
from engines.turns.reply import Progress, Reply
from harness.calibration.fit import Sample
from workloads.trace import Turn

SHORTEST = 32
"""Tokens of the shortest context of a decode, and of the smallest prefill chunk a quarter of it."""

GROWTH = 64
"""Tokens that a decode may grow by while the points of its group are measured."""

POOL_SHARE = 0.9
"""Share of the KV pool that a cell may fill. Nothing is then preempted while the cell is measured."""


@dataclass(frozen=True)
class Group:
    """Decodes that stay while prefill chunks come and go. `context`: mean tokens of each decode."""

    decodes: int
    context: int


@dataclass(frozen=True)
class Chunk:
    """A prefill of `tokens` on top of `cached` ones; `ends`: it is the prompt's last and samples a token."""

    tokens: int
    cached: int
    ends: bool


@dataclass(frozen=True)
class Limits:
    """The bounds of the grid: requests and tokens of a step, tokens of a request and of the KV pool."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
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
    """Yield groups of decodes, one without decodes among them, each with its chunks; None: decodes alone.

    Batches double up to one below max_num_seqs, contexts and chunks grow geometrically. Every group has each size of
    chunk once; the cached part of its prompt, and whether it ends, change from group to group.
    """
    longest = int((limits.max_model_len - GROWTH) / 1.25)
    batches = _geometric(1, limits.max_num_seqs - 1, 4 if quick else 2)
    contexts = _geometric(SHORTEST, max(SHORTEST, longest), (longest / SHORTEST) ** (1 / (2 if quick else 3)))
    groups = [Group(0, 0)] + [
        Group(decodes, context)
        for decodes, context in itertools.product(batches, contexts)
        if decodes * (1.25 * context + GROWTH) <= limits.pool_tokens
    ]
    cells: dict[Group, list[Chunk | None]] = {}
    for index, group in enumerate(groups):
        room = min(limits.max_num_batched_tokens - group.decodes, limits.max_model_len // 2)
        sizes = _geometric(SHORTEST // 4, room, 5 if quick else 2.5)
        left = limits.pool_tokens - group.decodes * (1.25 * group.context + GROWTH)
        chunks: list[Chunk | None] = [None] if group.decodes else []
        for position, tokens in enumerate(sizes):
            most = int(min(limits.max_model_len - tokens - 8, left - tokens - 64))
            if most < 0:
                continue
            cached = (0, most // 8, most // 2, 0, most)[(index + position) % 5]
            chunks.append(Chunk(tokens, cached, ends=bool((index + position) % 2)))
        cells[group] = chunks
    return cells


def _geometric(first: int, last: int, ratio: float) -> list[int]:
    """Return whole numbers from `first` to `last`, each about `ratio` times the one before."""
    if last < first:
        return []
    steps = max(1, round(np.log(last / first) / np.log(ratio))) if last > first else 0
    return sorted({round(first * (last / first) ** (i / max(1, steps))) for i in range(steps + 1)})


Script = Generator[Plan, StageView, StageView]
"""Yields what each round is to do and receives what it sees next; returns what it has seen last."""


class Tap:
    """A device that remembers its last step: its rows, when it ended (s), and whether rows were dropped."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.modelled = device.modelled
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
    def text(self, turn: int, tokens: int) -> None: ...

    def audio(self, turn: int, audio_s: float) -> None: ...

    def reply_done(self, turn: int) -> None: ...

    def refused(self, reason: str, status: HTTPStatus) -> None: ...


class Driver:
    """The policy that runs scripts on `engine`, which must serve no other request.

    `skip(True)` leaves the model's forward out of the following steps. `elapsed_s`: time of the last round.
    """

    def __init__(self, server: Serving, engine: StageEngine, skip: Callable[[bool], None], seed: int) -> None:
        self.counters: Counter[str] = Counter()
        self.engine = engine
        self.tap = Tap(engine.device)
        self.skip = skip
        self.rng = np.random.default_rng(seed)
        self.loop = asyncio.get_running_loop()
        self.elapsed_s = 0.0
        self._server = server
        self._vocab = server.gateway.deployment.model.stages[engine.stage].vocab
        self._sessions = itertools.count()
        self._script: Script | None = None
        self._ended = asyncio.Event()
        self._planned_s = 0.0

    def plan(self, view: StageView) -> Plan:
        self.elapsed_s = view.now - self._planned_s
        assert self._script is not None
        try:
            plan = self._script.send(view)
        except StopIteration:
            self._ended.set()
            plan = nothing(view)
        self._planned_s = self.loop.time()
        return plan

    async def run(self, script: Script) -> None:
        """Run `script` to its end; its exceptions are raised here."""
        engine = self.engine
        engine.device, engine.policy = self.tap, self
        self._ended.clear()
        next(script)
        self._script = script
        keeper = self.request(SHORTEST)  # never runs: the loop asks a policy only while there is a request
        engine.submit(keeper)
        serving = asyncio.create_task(engine.serve(), name=f"measuring {engine.stage}")
        ended = asyncio.create_task(self._ended.wait())
        done, _ = await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if serving in done:
            serving.result()  # it has failed: it never ends otherwise
        engine.abort(keeper)
        while engine.load:
            await asyncio.sleep(0.001)
        serving.cancel()
        engine.device = self.tap.device

    def request(self, tokens: int, output: int = GROWTH + SHORTEST) -> StageRequest:
        """Return a request of a client that only receives, with a prompt of `tokens` that no other one shares. It must
        not end while it is needed: it ends after `output` tokens."""
        engine, session = self.engine, next(self._sessions)
        self._server.gateway.open(session, _Nobody())
        turn = Turn(session, 0, 0.0, "text", tokens, None, output, None, None, None, None, 0.0)
        prompt = self.rng.integers(1, self._vocab, tokens).tolist()
        # No frame ends a chunk, and the text that a talker waits for has ended.
        reply = Reply(turn, prompt, tokens, 0, 0, 0, Progress(False, 1 << 30))
        request = reply.request(engine.stage, prompt, output)
        reply.live[engine.stage] = (engine, request)
        return request

    def submit(self, view: StageView, requests: Sequence[StageRequest]) -> Script:
        """Submit requests to the engine; they wait when this returns."""
        for request in requests:
            self.engine.submit(request)
        return (yield nothing(view))

    def abort(self, view: StageView, requests: Sequence[StageRequest]) -> Script:
        """Cancel requests; they are gone when this returns."""
        for request in requests:
            self.engine.abort(request)
        return (yield nothing(view))

    def decodes(self, view: StageView, requests: Sequence[StageRequest]) -> Script:
        """Submit requests and run them, without the forward, to where each step gives one token."""
        ids = {request.id for request in requests}
        view = yield from self.submit(view, requests)
        self.skip(True)
        while any(v.computed < v.tokens - 1 or not v.running for v in of(view, ids)):
            view = yield only(view, ids)
        self.skip(False)
        return view

    def near(self, context: int) -> int:
        """Return a prompt length around `context`: requests of one batch differ, as they do in a real one."""
        return max(1, int(context * self.rng.uniform(0.75, 1.25)))


def of(view: StageView, ids: set[str]) -> list[RequestView]:
    return [request for request in view.requests if request.id in ids]


def only(view: StageView, ids: set[str], caps: Mapping[str, int] | None = None) -> Plan:
    """Return the plan that runs these requests and no others, each with at most `caps` tokens."""
    return Plan(held=frozenset(request.id for request in view.requests) - ids, caps=caps or {})


def nothing(view: StageView) -> Plan:
    """Return the plan that runs no request; submitted and aborted requests are processed, and the next plan is asked
    for."""
    return only(view, set())


IN_A_ROW = 3
"""Steps measured one after the other where the batch only decodes."""


@dataclass(eq=False)
class GridRun:
    """Measures cells on `driver`; `samples` grows in the order of time.

    `canary()` runs the canary kernel and returns its seconds. `show()` is called after each group.
    """

    driver: Driver
    canary: Callable[[], float]
    show: Callable[[], None]
    samples: list[Sample] = field(init=False, default_factory=list)

    def measure(self, cells: Mapping[Group, Sequence[Chunk | None]], repeats: int, until_s: float) -> Script:
        """Measure every cell `repeats` times; no group begins after `until_s` on the loop's clock."""
        driver = self.driver
        view = yield Plan()
        for _ in range(repeats):
            for index in driver.rng.permutation(len(cells)).tolist():
                if driver.loop.time() > until_s:
                    driver.counters["groups_left_out"] += 1
                    continue
                group = list(cells)[index]
                view = yield from self._group(view, group, cells[group])
                self.show()
        return view

    def _group(self, view: StageView, group: Group, chunks: Sequence[Chunk | None]) -> Script:
        driver = self.driver
        # Without decodes, one settles in their place and is held while a chunk is measured.
        decodes = [driver.request(driver.near(group.context or SHORTEST)) for _ in range(group.decodes or 1)]
        running = {request.id for request in decodes}
        view = yield from driver.decodes(view, decodes)
        for index in driver.rng.permutation(len(chunks)).tolist():
            chunk = chunks[index]
            canary_s = self.canary()
            if chunk is None:
                view = yield only(view, running)  # to settle
                for _ in range(IN_A_ROW):
                    view = yield only(view, running)
                    self._keep(group, None, canary_s)
            else:
                view = yield from self._chunk(view, group, chunk, running, canary_s)
        return (yield from driver.abort(view, decodes))

    def _chunk(self, view: StageView, group: Group, chunk: Chunk, running: set[str], canary_s: float) -> Script:
        """Bring a prompt to its context, let one step settle, then measure the chunk on top of the decodes."""
        driver = self.driver
        request = driver.request(chunk.cached + chunk.tokens + (0 if chunk.ends else 4))
        view = yield from driver.submit(view, [request])
        both = running | {request.id}
        driver.skip(True)
        while (missing := chunk.cached - 1 - of(view, {request.id})[0].computed) > 0:
            view = yield only(view, {request.id}, {request.id: missing})
        driver.skip(False)
        view = yield only(view, both, {request.id: 1}) if chunk.cached else only(view, running)
        measured = both if group.decodes else {request.id}
        view = yield only(view, measured, {request.id: chunk.tokens})
        self._keep(group, chunk, canary_s)
        return (yield from driver.abort(view, [request]))

    def _keep(self, group: Group, chunk: Chunk | None, canary_s: float) -> None:
        """Keep the step that has just ended, if it followed the plan."""
        driver, total = self.driver, totals(self.driver.tap.rows)
        tokens = group.decodes + (chunk.tokens if chunk else 0)
        if total.tokens != tokens or total.requests != group.decodes + (chunk is not None):
            driver.counters["steps_not_as_planned"] += 1
            return
        self.samples.append(Sample((group, chunk), total, driver.elapsed_s, driver.loop.time(), canary_s))


TRIES = 40
"""Interruptions of each shape of step."""

WHOLE = 3
"""Steps that are measured whole, and as many without the forward, before they are interrupted."""


def reaction_shapes(limits: Limits) -> list[tuple[Group, Chunk | None]]:
    """Return a small and a large batch of decodes, and a prefill chunk with two decodes."""
    context = min(256, limits.max_model_len // 4)
    chunk = Chunk(min(limits.max_num_batched_tokens - 4, limits.max_model_len // 2, 512), 0, ends=False)
    many = max(2, min(limits.max_num_seqs // 2, limits.pool_tokens // (2 * context)))
    return [(Group(1, context), None), (Group(many, context), None), (Group(2, context), chunk)]


def react(driver: Driver, shapes: Sequence[tuple[Group, Chunk | None]], layers: int, into: list[Reaction]) -> Script:
    """Interrupt steps of each shape at times drawn evenly over the step; results go `into`.

    The flag is set through the engine, as a barge-in would. A layer's time is the time of a step beyond one without the
    forward, over the layers.
    """
    view = yield Plan()
    for group, chunk in shapes:
        output = 3 * (TRIES + 2 * WHOLE)
        decodes = [driver.request(driver.near(group.context), output) for _ in range(group.decodes)]
        view = yield from driver.decodes(view, decodes)
        running = {request.id for request in decodes}
        without: list[float] = []
        whole: list[float] = []
        reactions: list[float] = []
        for _ in range(WHOLE):
            driver.skip(True)
            view = yield from _step(driver, view, running, chunk, None, without)
            driver.skip(False)
            view = yield from _step(driver, view, running, chunk, None, whole)
        step_s = float(np.median(whole))
        for _ in range(TRIES):
            delay_s = float(driver.rng.uniform(0, step_s))
            view = yield from _step(driver, view, running, chunk, delay_s, reactions)
        view = yield from driver.abort(view, decodes)
        if reactions:
            median_s, p90_s = np.quantile(reactions, [0.5, 0.9]).tolist()
            into.append(
                Reaction(
                    shape=_name(group, chunk),
                    step_s=round(step_s, 6),
                    layer_s=round(max(0.0, step_s - float(np.median(without))) / layers, 6),
                    median_s=round(median_s, 6),
                    p90_s=round(p90_s, 6),
                    interrupted=len(reactions),
                    ran_out=TRIES - len(reactions),
                )
            )
    return view


def _step(
    driver: Driver,
    view: StageView,
    running: set[str],
    chunk: Chunk | None,
    interrupt_after_s: float | None,
    into: list[float],
) -> Script:
    """Run one step of the shape, after one of the decodes alone. Return its seconds, or from flag to end if it was
    interrupted."""
    prompts = [driver.request(chunk.tokens + 4)] if chunk else []
    caps = {request.id: chunk.tokens for request in prompts} if chunk else {}
    if prompts:
        view = yield from driver.submit(view, prompts)
    view = yield only(view, running)
    ids = running | caps.keys()
    flagged: list[float] = []

    def interrupt() -> None:
        flagged.append(driver.loop.time())
        driver.engine.interrupt(ids)

    timer = None if interrupt_after_s is None else driver.loop.call_later(interrupt_after_s, interrupt)
    view = yield only(view, ids, caps)
    if timer is None:
        into.append(driver.elapsed_s)
    else:
        timer.cancel()
        if flagged and driver.tap.dropped:
            into.append(driver.tap.ended_s - flagged[0])
    if prompts:
        view = yield from driver.abort(view, prompts)
    return view


def _name(group: Group, chunk: Chunk | None) -> str:
    decodes = f"{group.decodes} decode{'s' if group.decodes != 1 else ''} at {group.context} tokens"
    return decodes if chunk is None else f"{decodes} and {chunk.tokens} prefill tokens"
