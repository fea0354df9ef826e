"""One batched call for all sessions that are due at a tick: it feeds their frames and returns their tokens."""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from engines.core.admission import FrameLatency
from engines.core.recorder import Recorder
from engines.frames.call import Call, Frame
from engines.frames.call_params import CallParams
from engines.frames.session_engine import Chunk, SessionEngine, SessionRequest

STEP_JITTER_CV = 0.3
"""Coefficient of variation of the costs of a batch: [chosen] specification 5.4."""


class Gateway(Protocol):
    """Makes batches and learns of their end; `engines.frames.gateway`. `stage`: whose replicas it feeds."""

    stage: str
    params: CallParams
    frame_s: float
    recorder: Recorder

    def chunk(self, session: Call, frame: Frame) -> Chunk: ...

    def again(self, session: Call) -> Sequence[Frame]: ...

    def gave(self, session: Call, tokens: int) -> None: ...

    def returned(self, number: int, latencies: Sequence[FrameLatency]) -> None: ...


class FrameBatcher:
    """Feeds one replica the frames that are due, one batch at a time, and returns its sessions' tokens.

    The Metronome paper calls it a worker, and a batch of it a Step: vLLM has other things of these names.
    """

    def __init__(self, gateway: Gateway, engine: SessionEngine, rng: np.random.Generator) -> None:
        self.gateway = gateway
        self.engine = engine
        self.busy = False
        self.sessions: dict[int, Call] = {}
        self._loop = asyncio.get_running_loop()
        self._rng = rng
        self._silent: list[Call] = []
        self._left: list[SessionRequest] = []
        self._answered: asyncio.Future[None] | None = None
        self._on_answer: Callable[[Call], None] = _nothing
        engine.on_answer(self._look)
        engine.failed = self._fail

    async def run(self, number: int, due: Sequence[tuple[Call, Sequence[Frame]]]) -> None:
        """Feed each session that is due its frames, and return the tokens of all sessions since the last collection.

        Waits until every one has a token, at most `wait_cap` of B from its own start.
        """
        gateway, params, loop = self.gateway, self.gateway.params, self._loop
        recorder, per_session = gateway.recorder, params.wait_scope == "session"
        begun_s = loop.time()
        latencies: list[FrameLatency] = []

        def give_back(session: Call) -> None:
            if session.gone:
                return
            now, tokens = loop.time(), session.uncollected
            session.collected += tokens
            latencies.append(FrameLatency(session.id, now - begun_s, not session.batches))
            session.batches += 1
            recorder.event(now, "frame_out", session.id, session.frame, gateway.stage, tokens)
            gateway.gave(session, tokens)
            session.listener.frame(session.frame, tokens)

        recorder.event(begun_s, "tick", -1, number, value=len(due))
        call_s, *feeds_s = self._costs([len(frames) + len(gateway.again(session)) for session, frames in due])
        at_s = begun_s + call_s
        silent: list[Call] = []
        for (session, frames), feed_s in zip(due, feeds_s, strict=True):
            at_s += feed_s
            late_s = loop.time() - at_s
            if late_s < 0 or feed_s:  # on the wall clock also when late: the engine begins with its frames
                await asyncio.sleep(max(0.0, -late_s))
            if session.gone:
                continue
            self._feed(session, frames, begun_s)
            if not session.uncollected:
                silent.append(session)
            elif per_session:
                give_back(session)
        self._on_answer = give_back if per_session else _nothing
        self._silent = [session for session in silent if not session.gone]
        self._look()
        if self._silent:
            self._answered = loop.create_future()
            timer = loop.call_at(begun_s + params.wait_cap * gateway.frame_s, self._settle)
            await self._answered
            timer.cancel()
            self._answered = None
        cut = bool(self._silent)
        for session in self._silent if per_session else [session for session, _ in due]:
            give_back(session)
        self._silent = []
        recorder.event(loop.time(), "tick_end", -1, number, value=float(cut))
        self.busy = False
        gateway.returned(number, latencies)

    def close(self, session: Call) -> None:
        session.gone = True
        del self.sessions[session.id]
        if session.request is not None:
            self._left.append(session.request)
        if self.gateway.params.ends_calls:
            self.end_left()
        self._look()

    def end_left(self) -> None:
        """End the closed sessions that are still at the engine."""
        while self._left:
            self.engine.close(self._left.pop())

    def _costs(self, chunks: Sequence[int]) -> list[float]:
        """Return the seconds of a batch's call and of each session in it, by the number of its chunks."""
        params, sigma = self.gateway.params, math.sqrt(math.log1p(STEP_JITTER_CV**2))
        draws = np.round(self._rng.lognormal(-0.5 * sigma**2, sigma, len(chunks) + 1), 6)
        draws[0] *= params.step_rpc_s
        draws[1:] *= params.feed_s * np.array(chunks)
        return draws.tolist()

    def _feed(self, session: Call, frames: Sequence[Frame], dispatched_s: float) -> None:
        for frame in frames:
            chunk, turn = self.gateway.chunk(session, frame), frame.turn
            assert session.request is not None
            session.fed_tokens += len(chunk.prompt)
            session.fed_chunks += 1
            session.frame, session.fed_s = turn.turn, dispatched_s
            self.gateway.recorder.event(
                dispatched_s, "fed", session.id, turn.turn, self.gateway.stage, float(len(chunk.prompt))
            )
            self.engine.append(session.request, chunk)

    def _look(self) -> None:
        """Look again: a session has a token, or has gone."""
        silent = self._silent
        if not silent:
            return
        self._silent = [session for session in silent if not (session.uncollected or session.gone)]
        if len(self._silent) < len(silent):
            for session in silent:
                if session.uncollected:
                    self._on_answer(session)
            if not self._silent:
                self._settle()

    def _settle(self) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    def _fail(self, request: SessionRequest, reason: str) -> None:
        session = self.sessions.get(request.session)
        if session is not None and session.request is request:
            session.gone = True
            del self.sessions[session.id]
            session.listener.failed(reason)
            self._look()


def _nothing(session: Call) -> None:
    """Do nothing: under batch scope no session is answered before all are."""
