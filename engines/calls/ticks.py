"""The front of a server for interaction sessions: audio of frames in, and at each tick one Step for all sessions due.

Metronome section 4 and specification 2.2. Audio never waits: what comes while the engine stalls lies here and in the
engine. The same coroutines run in virtual time and on the wall clock.
"""

import asyncio
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from engines.calls.params import SessionParams
from engines.calls.sessions import Chunk, SessionEngine, SessionRequest
from engines.core.admission import Admission, FrameLatency
from engines.core.recorder import Recorder
from engines.core.request import Progress, Reply
from engines.deployment import Deployment
from engines.models.token_ids import first_answer_id, frame_tokens, heard_ids, template_ids
from engines.speaking.gateway import AudioEncoder, Piece
from workloads.trace import Turn

STAGE = "thinker"
STEP_JITTER_CV = 0.3
"""Of the costs of a Step: [chosen] specification 5.4."""


class Listener(Protocol):
    """The client's end of a session: what the server sends it."""

    def accepted(self) -> None: ...

    def rejected(self) -> None:
        """Overload: the session is not served, and there is no use in asking again."""
        ...

    def frame(self, frame: int, tokens: int) -> None:
        """What a Step returned; `frame` is the newest that it fed. No tokens: an empty frame."""
        ...

    def failed(self, reason: str) -> None: ...


class Frame(NamedTuple):
    """A frame's audio, complete. `heard`: as a piece of a prompt, where the thinker really hears."""

    turn: Turn
    heard: Piece | None = None


class Text(NamedTuple):
    """Token ids before and after the audio of a request's first frame, and of each later one. `end`: the token that
    ends an answer, if one does."""

    first: tuple[list[int], list[int]]
    later: tuple[list[int], list[int]]
    end: int | None = None


class Recycling(Protocol):
    """When a session's request is replaced by a new one, and how much audio that starts with (tokens)."""

    @property
    def recycle_at(self) -> int: ...

    @property
    def carry(self) -> int: ...


@dataclass(slots=True, eq=False)
class _Session:
    """`ready`: frames whose audio is complete and not fed. `heard`: the latest fed, where they may be fed again.
    `before`: tokens said in requests that were recycled. `fed_tokens`, `fed_chunks`: to the request it has now.
    `frame`: the newest fed; `steps` that have returned to it."""

    id: int
    listener: Listener
    request: SessionRequest | None = None
    ready: list[Frame] = field(default_factory=list)
    heard: deque[Frame] = field(default_factory=deque)
    frame: int = -1
    before: int = 0
    collected: int = 0
    fed_tokens: int = 0
    fed_chunks: int = 0
    steps: int = 0
    gone: bool = False

    def take(self) -> list[Frame]:
        """The frames that the next Step feeds."""
        ready, self.ready = self.ready, []
        return ready

    @property
    def uncollected(self) -> int:
        """Tokens said since its last collection."""
        return self.before + (self.request.produced if self.request else 0) - self.collected

    @property
    def length(self) -> int:
        """Tokens of its request's context, as far as answered; the last token of each answer is not part of it."""
        assert self.request is not None
        return self.fed_tokens + max(0, self.request.produced - self.fed_chunks)


class Worker:
    """What owns one engine and answers one Step at a time."""

    def __init__(self, gateway: "TickGateway", engine: SessionEngine, rng: np.random.Generator) -> None:
        self.gateway = gateway
        self.engine = engine
        self.busy = False
        self.sessions: dict[int, _Session] = {}
        self._loop = asyncio.get_running_loop()
        self._rng = rng
        self._silent: list[_Session] = []
        self._answered: asyncio.Future[None] | None = None
        self._on_answer: Callable[[_Session], None] = _nothing
        engine.answered = self._look
        engine.failed = self._fail

    async def step(self, number: int, due: Sequence[tuple[_Session, Sequence[Frame]]]) -> None:
        """Feed each session that is due its frames and return what all have said since they were last asked.

        Waits until every one has a token, at most `wait_cap` of B from its own start.
        """
        gateway, params, loop = self.gateway, self.gateway.params, self._loop
        recorder, each = gateway.recorder, params.wait_scope == "session"
        begun_s = loop.time()
        latencies: list[FrameLatency] = []

        def give_back(session: _Session) -> None:
            if session.gone:
                return
            now, tokens = loop.time(), session.uncollected
            session.collected += tokens
            latencies.append(FrameLatency(session.id, now - begun_s, not session.steps))
            session.steps += 1
            recorder.event(now, "frame_out", session.id, session.frame, STAGE, tokens)
            session.listener.frame(session.frame, tokens)

        recorder.event(begun_s, "tick", -1, number, value=len(due))
        call_s, *feeds_s = self._costs(len(due))
        at_s = begun_s + call_s
        silent: list[_Session] = []
        for (session, frames), feed_s in zip(due, feeds_s, strict=True):
            at_s += feed_s
            late_s = loop.time() - at_s
            if late_s < 0 or feed_s:  # on the wall clock also when late: the engine begins with what it has
                await asyncio.sleep(max(0.0, -late_s))
            if session.gone:
                continue
            self._feed(session, frames, begun_s)
            if not session.uncollected:
                silent.append(session)
            elif each:
                give_back(session)
        self._on_answer = give_back if each else _nothing
        self._silent = [session for session in silent if not session.gone]
        self._look()
        if self._silent:
            self._answered = loop.create_future()
            timer = loop.call_at(begun_s + params.wait_cap * gateway.frame_s, self._settle)
            await self._answered
            timer.cancel()
            self._answered = None
        cut = bool(self._silent)
        for session in self._silent if each else [session for session, _ in due]:
            give_back(session)
        self._silent = []
        recorder.event(loop.time(), "tick_end", -1, number, value=float(cut))
        self.busy = False
        gateway.returned(number, latencies)

    def close(self, session: _Session) -> None:
        """The client has gone."""
        session.gone = True
        del self.sessions[session.id]
        if session.request is not None:
            self.engine.close(session.request)
        self._look()

    def _costs(self, sessions: int) -> list[float]:
        """Seconds of a Step's call and of each session in it."""
        params, sigma = self.gateway.params, math.sqrt(math.log1p(STEP_JITTER_CV**2))
        draws = np.round(self._rng.lognormal(-0.5 * sigma**2, sigma, sessions + 1), 6)
        draws[0] *= params.step_rpc_s
        draws[1:] *= params.feed_s
        return draws.tolist()

    def _feed(self, session: _Session, frames: Sequence[Frame], dispatched_s: float) -> None:
        """Hand frames of the session to the engine."""
        for frame in frames:
            chunk, turn = self.gateway.chunk(session, frame), frame.turn
            assert session.request is not None
            session.fed_tokens += len(chunk.prompt)
            session.fed_chunks += 1
            session.frame = turn.turn
            self.gateway.recorder.event(
                dispatched_s, "fed", session.id, turn.turn, STAGE, float(len(chunk.prompt))
            )
            self.engine.append(session.request, chunk)

    def _look(self) -> None:
        """Somebody has said something, or has gone."""
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
        session = self.sessions.get(request.reply.turn.session)
        if session is not None and session.request is request:
            session.gone = True
            del self.sessions[session.id]
            session.listener.failed(reason)
            self._look()


class TickGateway:
    """What clients of interaction sessions call, already behind the network.

    `frame_s`: B. `engines`: the thinker's replicas, to which sessions stick; each has a worker. `admission`: who
    is let in; None: everybody. `recycling`: None where a session keeps its request. `rngs`: one for each worker's
    costs. `serve` runs the ticks. `audio_encoder`: where the thinker really hears; `listen` runs them. `text`: what it
    reads around the audio; None: `template_tokens` after each frame.
    """

    def __init__(
        self,
        deployment: Deployment,
        params: SessionParams,
        frame_s: float,
        engines: Sequence[SessionEngine],
        rngs: Iterable[np.random.Generator],
        recorder: Recorder,
        admission: Admission | None = None,
        recycling: Recycling | None = None,
        audio_encoder: AudioEncoder | None = None,
        text: Text | None = None,
    ) -> None:
        self.deployment = deployment
        self.params = params
        self.frame_s = frame_s
        self.recorder = recorder
        self.admission = admission
        self.recycling = recycling
        self.audio_encoder = audio_encoder
        self.workers = [Worker(self, engine, rng) for engine, rng in zip(engines, rngs, strict=True)]
        self.counted: Counter[str] = Counter(
            dict.fromkeys(("ticks", "tick_overruns", "recycles", "reencoded_tokens", "admitted", "shed"), 0)
        )
        self._vocab = deployment.stages[STAGE].decoder.vocab
        self._audio_tokens = frame_tokens(deployment.model, frame_s)
        template = [], template_ids(params.template_tokens, self._vocab)
        self._text = text or Text(template, template)
        self._to_hear: asyncio.Queue[tuple[_Session, Turn]] = asyncio.Queue()
        self._steps: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    def open(self, session: int, listener: Listener) -> None:
        """A client asks to be served; it is told at once."""
        worker = self._worker(session)
        if self.admission is not None and not self.admission.admits(self.admitted):
            self.counted["shed"] += 1
            listener.rejected()
            return
        self.counted["admitted"] += 1
        listener.accepted()
        if worker.engine.crashed:
            listener.failed("the engine has crashed")
            return
        worker.sessions[session] = _Session(session, listener)

    def append(self, turn: Turn) -> None:
        """A frame's audio is complete."""
        session = self._worker(turn.session).sessions.get(turn.session)
        if session is None or session.gone:
            return
        if self.audio_encoder is None:
            session.ready.append(Frame(turn))
        else:
            self._to_hear.put_nowait((session, turn))

    async def listen(self) -> None:
        """Hear frames one after the other, for ever; whoever started the task cancels it."""
        assert self.audio_encoder is not None
        while True:
            session, turn = await self._to_hear.get()
            if not session.gone:
                session.ready.append(Frame(turn, await self.audio_encoder.hear(turn)))
                self.counted["sounds_heard"] += 1

    def close(self, session: int) -> None:
        """The client has gone; sessions that were rejected or failed may be closed as well."""
        worker = self._worker(session)
        state = worker.sessions.get(session)
        if state is not None:
            worker.close(state)

    def said(self, session: int) -> list[int]:
        """Token ids of what the session has said since its request began."""
        request = self._worker(session).sessions[session].request
        return request.output if request is not None else []

    @property
    def admitted(self) -> int:
        """Sessions on line."""
        return sum(len(worker.sessions) for worker in self.workers)

    def counters(self) -> Counter[str]:
        """What was counted here and by admission."""
        counters = Counter(self.counted)
        counters["max_len_hits"] = sum(worker.engine.max_len_hits for worker in self.workers)
        counters["streaming_queue_peak"] = max(worker.engine.longest_queue for worker in self.workers)
        if self.admission is not None:
            counters.update(self.admission.counters)
        return counters

    async def serve(self) -> None:
        """Beat for ever, on an absolute schedule; whoever started the task cancels it.

        Ticks come `slots` times per B, and a session is due at every `slots`-th of them.
        """
        slots, beat = self.params.slots, 0
        while True:
            beat += 1
            await asyncio.sleep(beat * self.frame_s / slots - self._loop.time())
            for place, worker in enumerate(self.workers):
                self._tick(worker, beat * len(self.workers) + place, beat % slots)
            for step in [step for step in self._steps if step.done()]:
                self._steps.remove(step)
                step.result()  # an error in a Step must not pass unseen

    def _tick(self, worker: Worker, number: int, slot: int) -> None:
        slots = self.params.slots
        due = [
            session
            for session in worker.sessions.values()
            if session.ready and not session.gone and session.id % slots == slot
        ]
        if not due:
            return
        if worker.busy:
            self.counted["tick_overruns"] += 1
            self.recorder.event(self._loop.time(), "tick_skipped", -1, number)
            return
        self.counted["ticks"] += 1
        worker.busy = True
        fed = [(session, session.take()) for session in due]
        self._steps.add(self._loop.create_task(worker.step(number, fed), name=f"step {number}"))

    def returned(self, number: int, latencies: Sequence[FrameLatency]) -> None:
        """A Step has ended."""
        if self.admission is not None:
            self.admission.tick(latencies, self.admitted)
            self.recorder.event(self._loop.time(), "cap", -1, number, value=self.admission.cap)

    def chunk(self, session: _Session, frame: Frame) -> Chunk:
        """The frame as the next chunk of the session's request, which is opened or replaced where that is due."""
        again, turn = list[Frame](), frame.turn
        if session.request is None:
            self._begin(session, turn)
        elif self.recycling is not None and session.length >= self.recycling.recycle_at:
            again = list(session.heard)
            self._recycle(session, again, turn)
        if self.recycling is not None:
            session.heard.append(frame)
            while len(session.heard) > self.recycling.carry // self._audio_tokens:
                session.heard.popleft()
        before, after = self._text.later if session.fed_chunks else self._text.first
        prompt, features, audio_at = list(before), [], []
        for sound in [*again, frame]:
            audio_at.append(len(prompt))
            if sound.heard is None:
                prompt += heard_ids(sound.turn, self._audio_tokens, self._vocab)
            else:
                features += sound.heard.at(len(prompt))
                prompt += sound.heard.token_ids
        return Chunk(turn, prompt + after, turn.output_tokens, tuple(audio_at), features, self._text.end)

    def _begin(self, session: _Session, first: Turn) -> None:
        reply = Reply(
            turn=first,
            prompt=[],
            user_tokens=0,
            text_total=0,
            frames_total=0,
            first_token_id=first_answer_id(first, self._vocab),
            progress=Progress(spoken=False, chunk_end=0),
        )
        session.request = SessionRequest(STAGE, reply, [], 0, audio_s=self.frame_s)

    def _recycle(self, session: _Session, again: Sequence[Frame], turn: Turn) -> None:
        """End the session's request and open one that begins with audio which it has heard before."""
        old = session.request
        assert old is not None
        self._worker(session.id).engine.close(old)
        session.before += old.produced
        session.fed_tokens = session.fed_chunks = 0
        self._begin(session, turn)
        tokens = len(again) * self._audio_tokens
        self.counted["recycles"] += 1
        self.counted["reencoded_tokens"] += tokens
        self.recorder.event(self._loop.time(), "recycle", session.id, turn.turn, STAGE, tokens)

    def _worker(self, session: int) -> Worker:
        return self.workers[session % len(self.workers)]


def _nothing(session: _Session) -> None:
    """Under batch scope nobody is answered before all are."""
