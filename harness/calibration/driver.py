"""Decide every round of one engine from a script: which requests run, with how many tokens, and what that took.

The script is a policy to the engine's own loop, so a round's time is what the loop takes from one plan to the next:
scheduling, hand-over, forward, sampling, update and delivery of the tokens, without the thinking of the policy itself.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import numpy as np

from engines.builder import Serving
from engines.core.device import Device, Row
from engines.core.engine import StageEngine
from engines.core.policy import Plan, RequestView, StageView
from engines.core.request import StageRequest
from engines.speaking.reply import Progress, Reply
from harness.calibration.cells import GROWTH, SHORTEST
from workloads.trace import Turn

Script = Generator[Plan, StageView, StageView]
"""Yields what each round is to do and receives what it sees next; returns what it has seen last."""


class Tap:
    """A device that remembers the last step it ran: its rows, when it ended (s), and whether rows were dropped."""

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
    """A client that does nothing with what it receives."""

    def text(self, turn: int, tokens: int) -> None: ...

    def audio(self, turn: int, audio_s: float) -> None: ...

    def reply_done(self, turn: int) -> None: ...


class Driver:
    """The policy that takes scripts to their end on `engine`, which must be serving nobody else.

    `skip(True)` leaves the model's forward out of the steps that follow. `elapsed_s`: what the last round took.
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
        """Take `script` to its end; what it raises is raised here."""
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
        """A request of somebody who only receives, with a prompt of `tokens` that no other one shares.

        It must not end while it is needed: after `output` tokens it does.
        """
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
        """Hand requests to the engine; they wait when this returns."""
        for request in requests:
            self.engine.submit(request)
        return (yield nothing(view))

    def abort(self, view: StageView, requests: Sequence[StageRequest]) -> Script:
        """Cancel requests; they are gone when this returns."""
        for request in requests:
            self.engine.abort(request)
        return (yield nothing(view))

    def decodes(self, view: StageView, requests: Sequence[StageRequest]) -> Script:
        """Submit requests and take them, without the forward, to where each step gives one token."""
        ids = {request.id for request in requests}
        view = yield from self.submit(view, requests)
        self.skip(True)
        while any(v.computed < v.tokens - 1 or not v.running for v in of(view, ids)):
            view = yield only(view, ids)
        self.skip(False)
        return view

    def near(self, context: int) -> int:
        """A prompt's length around `context`: requests of one batch differ, as they do in a real one."""
        return max(1, int(context * self.rng.uniform(0.75, 1.25)))


def of(view: StageView, ids: set[str]) -> list[RequestView]:
    return [request for request in view.requests if request.id in ids]


def only(view: StageView, ids: set[str], caps: Mapping[str, int] | None = None) -> Plan:
    """Run these requests and no others, each with at most `caps` tokens."""
    return Plan(held=frozenset(request.id for request in view.requests) - ids, caps=caps or {})


def nothing(view: StageView) -> Plan:
    """Run nobody; what was submitted or aborted is taken in, and the next plan is asked for."""
    return only(view, set())
