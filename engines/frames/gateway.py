"""The front of a server for calls: audio of frames in, and at each tick one batch of all sessions that are due.

Metronome section 4 and specification 2.2. Audio never waits for the engine: while it stalls, frames queue in the
gateway and in the engine. The same coroutines run in virtual time and on the wall clock.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from engines.core.admission import Admission, FrameLatency
from engines.core.recorder import Recorder
from engines.core.request import DeviceWork
from engines.core.router import Router, check_replica
from engines.deployments import Deployment
from engines.frames.batcher import FrameBatcher
from engines.frames.call import Call, Frame, Listener
from engines.frames.call_params import CallParams
from engines.frames.listeners import CallListeners
from engines.frames.session_engine import Chunk, SessionEngine, SessionRequest
from engines.models.token_ids import audio_ids, density, first_answer_id, frame_tokens, template_ids
from engines.turns.gateway import AudioEncoder
from workloads.trace import Turn


class Text(NamedTuple):
    """Token ids before and after the audio of a request's first frame, and of each later one. `end`: the token that
    ends an answer, if one does."""

    first: tuple[list[int], list[int]]
    later: tuple[list[int], list[int]]
    end: int | None = None


class TickGateway:
    """The server as clients of calls see it, already behind the network.

    `frame_s`: B. `engines`: the thinker's replicas, each with a batcher; `router`: chooses the replica of a session,
    which stays there. `admission`: decides which sessions are admitted; None: all. `rngs`: one for each batcher's
    costs. `audio_encoder`: set if the thinker really hears. `text`: the text around the audio; None: `template_tokens`
    after each frame, with the trace's factor (`density`) on these and on its audio's tokens. `listeners`: learns about
    listeners for the policies.
    """

    def __init__(
        self,
        deployment: Deployment,
        params: CallParams,
        frame_s: float,
        engines: Sequence[SessionEngine],
        rngs: Iterable[np.random.Generator],
        recorder: Recorder,
        router: Router,
        admission: Admission | None = None,
        audio_encoder: AudioEncoder | None = None,
        text: Text | None = None,
        listeners: CallListeners | None = None,
    ) -> None:
        self.deployment = deployment
        self.stage = deployment.entry
        self.params = params
        self.frame_s = frame_s
        self.recorder = recorder
        self.router = router
        self.admission = admission
        self.audio_encoder = audio_encoder
        self.batchers = [FrameBatcher(self, engine, rng) for engine, rng in zip(engines, rngs, strict=True)]
        self.counted: Counter[str] = Counter(
            dict.fromkeys(("ticks", "tick_overruns", "recycles", "reencoded_tokens", "admitted", "shed"), 0)
        )
        self._vocab = deployment.stages[self.stage].decoder.vocab
        self._audio_tokens = frame_tokens(deployment.model, frame_s)
        self._text = text
        self._listeners = listeners
        self._home: dict[int, FrameBatcher] = {}
        self._to_encode: asyncio.Queue[tuple[Call, Turn]] = asyncio.Queue()
        self._batches: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    def open(self, session: int, listener: Listener) -> None:
        """Open a session for a client, or reject it at once."""
        if self.admission is not None and not self.admission.admits(self.admitted):
            self.counted["shed"] += 1
            listener.rejected()
            return
        self.counted["admitted"] += 1
        listener.accepted()
        replica = check_replica(self.router, self.router.route(session, []), len(self.batchers))
        batcher = self.batchers[replica]
        if batcher.engine.crashed:
            self.router.done(replica)
            listener.failed("the engine has crashed")
            return
        self._home[session] = batcher
        batcher.sessions[session] = Call(session, listener)
        if self._listeners is not None:
            self._listeners.opened(session)

    def append(self, turn: Turn) -> None:
        """Take in a frame's complete audio."""
        session = self._call(turn.session)
        if session is None or session.gone:
            return
        if self._listeners is not None:
            self._listeners.framed(turn.session)
        if self.audio_encoder is None:
            session.ready.append(Frame(turn))
        else:
            self._to_encode.put_nowait((session, turn))

    async def encode(self) -> None:
        """Encode frames one after the other, for ever; the owner of the task cancels it."""
        assert self.audio_encoder is not None
        while True:
            session, turn = await self._to_encode.get()
            if not session.gone:
                session.ready.append(Frame(turn, await self.audio_encoder.encode(turn)))
                self.counted["sounds_heard"] += 1

    def close(self, session: int) -> None:
        """Close a session whose client has gone; rejected and failed sessions may be closed as well."""
        batcher = self._home.pop(session, None)
        if batcher is None:
            return
        self.router.done(self.batchers.index(batcher))
        self.router.forget(session)
        state = batcher.sessions.get(session)
        if state is not None:
            batcher.close(state)
        if self._listeners is not None:
            self._listeners.closed(session)

    def end_left(self) -> None:
        """End the calls that stayed at the engine after their clients had gone."""
        for batcher in self.batchers:
            batcher.end_left()

    def token_ids(self, session: int) -> list[int]:
        """Return the token ids that the session has said since its request began."""
        call = self._call(session)
        return call.request.output if call is not None and call.request is not None else []

    def fed_s(self, session: int) -> float:
        """Return the start of the batch that fed the session's newest frame, s."""
        call = self._call(session)
        assert call is not None
        return call.fed_s

    @property
    def admitted(self) -> int:
        """Number of connected sessions."""
        return sum(len(batcher.sessions) for batcher in self.batchers)

    def counters(self) -> Counter[str]:
        counters = Counter(self.counted)
        counters["max_len_hits"] = sum(batcher.engine.max_len_hits for batcher in self.batchers)
        counters["streaming_queue_peak"] = max(batcher.engine.longest_queue for batcher in self.batchers)
        if self.admission is not None:
            counters.update(self.admission.counters)
        return counters

    async def serve(self) -> None:
        """Tick for ever, on an absolute schedule; the owner of the task cancels it.

        Ticks come `slots` times per B, and a session is due at every `slots`-th of them.
        """
        slots, beat = self.params.slots, 0
        while True:
            beat += 1
            await asyncio.sleep(beat * self.frame_s / slots - self._loop.time())
            for i, batcher in enumerate(self.batchers):
                self._tick(batcher, beat * len(self.batchers) + i, beat % slots)
            for batch in [batch for batch in self._batches if batch.done()]:
                self._batches.remove(batch)
                batch.result()  # an error in a batch must not pass unseen

    def _tick(self, batcher: FrameBatcher, number: int, slot: int) -> None:
        slots = self.params.slots
        due = [
            session
            for session in batcher.sessions.values()
            if session.ready and not session.gone and session.id % slots == slot
        ]
        if not due:
            return
        if batcher.busy:
            self.counted["tick_overruns"] += 1
            self.recorder.event(self._loop.time(), "tick_skipped", -1, number)
            return
        self.counted["ticks"] += 1
        batcher.busy = True
        fed = [(session, session.take()) for session in due]
        self._batches.add(self._loop.create_task(batcher.run(number, fed), name=f"batch {number}"))

    def gave(self, session: Call, tokens: int) -> None:
        if self._listeners is not None:
            self._listeners.returned(session.id, tokens)

    def returned(self, number: int, latencies: Sequence[FrameLatency]) -> None:
        if self.admission is not None:
            self.admission.tick(latencies, self.admitted)
            self.recorder.event(self._loop.time(), "cap", -1, number, value=self.admission.cap)

    def chunk(self, session: Call, frame: Frame) -> Chunk:
        """Return the frame as the next chunk of the session's request, which is opened or replaced when that is due."""
        again, turn = self.again(session), frame.turn
        if session.request is None:
            self._begin(session, turn)
        elif self._outlived(session):
            self._recycle(session, again, turn)
        if self.params.recycle_at is not None:
            session.recent.append(frame)
            while len(session.recent) > self.params.carry // max(1, self._sound_tokens(turn)):
                session.recent.popleft()
        before, after = self._around(session, turn)
        prompt, features, audio_at = list(before), [], []
        for sound in [*again, frame]:
            audio_at.append(len(prompt))
            if sound.audio is None:
                prompt += audio_ids(sound.turn, self._sound_tokens(sound.turn), self._vocab)
            else:
                features += sound.audio.at(len(prompt))
                prompt += sound.audio.token_ids
        end = None if self._text is None else self._text.end
        return Chunk(turn, prompt + after, turn.output_tokens, tuple(audio_at), features, end)

    def again(self, session: Call) -> list[Frame]:
        """Return the frames that are fed again before the session's next frame, as its request will be replaced."""
        return list(session.recent) if self._outlived(session) else []

    def _outlived(self, session: Call) -> bool:
        recycle_at = self.params.recycle_at
        return recycle_at is not None and session.request is not None and session.length >= recycle_at

    def _sound_tokens(self, turn: Turn) -> int:
        return max(min(1, self._audio_tokens), round(self._audio_tokens * density(turn)))

    def _around(self, session: Call, turn: Turn) -> tuple[list[int], list[int]]:
        if self._text is not None:
            return self._text.later if session.fed_chunks else self._text.first
        return [], template_ids(round(self.params.template_tokens * density(turn)), self._vocab)

    def _begin(self, session: Call, first: Turn) -> None:
        first_id = first_answer_id(first, self._vocab)
        work = DeviceWork(audio_s=self.frame_s)
        session.request = SessionRequest(self.stage, first.session, first.turn, [], 0, first_id, work=work)

    def _recycle(self, session: Call, again: Sequence[Frame], turn: Turn) -> None:
        """End the session's request and open one that begins with the audio of earlier frames."""
        old = session.request
        assert old is not None
        self._home[session.id].engine.close(old)
        session.before += old.produced
        if self._listeners is not None:
            self._listeners.renewed(session.id, session.before)
        session.fed_tokens = session.fed_chunks = 0
        self._begin(session, turn)
        tokens = sum(self._sound_tokens(frame.turn) for frame in again)
        self.counted["recycles"] += 1
        self.counted["reencoded_tokens"] += tokens
        self.recorder.event(self._loop.time(), "recycle", session.id, turn.turn, self.stage, tokens)

    def _call(self, session: int) -> Call | None:
        batcher = self._home.get(session)
        return None if batcher is None else batcher.sessions.get(session)

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        return [self.serve(), self.encode()] if self.audio_encoder is not None else [self.serve()]
