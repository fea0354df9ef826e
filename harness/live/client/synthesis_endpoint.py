"""Speech synthesis over HTTP (`POST /v1/audio/speech`: text in, audio out as it is made), as the clients of
`harness.client.session` see it.

A turn asks for its reply's words as speech: as an agent would, whose model has written them. Nothing of what the user
says is sent. Audio is 16-bit mono, without a container, so each piece that comes is so many seconds. Fields: OpenAI's
speech API; `stream`, which vLLM-Omni 0.30 and SGLang-Omni 0.1.9 want set (`CreateSpeechRequest` of both).
"""

from __future__ import annotations

from typing import Any

import msgspec

from rehearsal.harness.client.params import ClientParams
from rehearsal.harness.live.client.base_endpoint import BaseEndpoint
from rehearsal.harness.live.client.failure_log import FailureLog
from rehearsal.harness.live.client.prompts import spoken_words
from rehearsal.harness.live.client.send_log import SendLog
from rehearsal.harness.live.client.text_endpoint import FULL, OPENED, open_pool
from rehearsal.harness.live.dialects.detect import resolve
from rehearsal.harness.live.dialects.dialect import RATE
from rehearsal.harness.live.target import TargetParams
from rehearsal.harness.live.transport.http import Exchange, HttpPool
from rehearsal.harness.records.log import EventLog
from rehearsal.workloads.trace import Session, Trace, Turn

BYTES = 2
"""Of a sample."""
_encode = msgspec.json.Encoder().encode


class SynthesisEndpoint(BaseEndpoint):
    """Implements `harness.client.session.Server`. Nothing that a client calls blocks or raises."""

    def __init__(
        self, trace: Trace, target: TargetParams, log: EventLog, sends: SendLog, failures: FailureLog
    ) -> None:
        super().__init__(trace, target, log, sends, failures)
        self._speakers: dict[int, Speaker] = {}
        self._ready = {session.id: Speaker(self, session) for session in trace.sessions}
        self._pool: HttpPool

    async def prepare(self) -> None:
        """Before time 0: open connections; all requests are made. UserError where nobody answers."""
        self.target = await resolve(self.target)
        self._pool = speech_pool(self.target)
        await open_pool(self._pool, self.target, min(OPENED, len(self.trace.sessions)))

    def expect(self, params: ClientParams) -> None:
        """Connections are open already, and belong to no session."""

    def open(self, session: int, listener: Any) -> None:
        speaker = self._speakers[session] = self._ready.pop(session)
        speaker.listener = listener

    def close(self, session: int) -> None:
        self._speakers.pop(session).stop()

    def speech_start(self, turn: Turn) -> None:
        """Who synthesises does not listen."""

    def commit(self, turn: Turn, end_s: float) -> None:
        self._speakers[turn.session].ask(turn, end_s, self._pool)

    def reports(self, session: int, turn: int, source: object) -> bool:
        return False

    def playback_ack(self, session: int, turn: int, played_s: float, playing: bool, at_s: float) -> float:
        """Nobody wants to know."""
        return 0.0

    def playback_done(self, session: int, turn: int) -> None:
        """Nobody wants to know."""

    def barge_in(self, session: int, played_s: float) -> None:
        """What is left unsaid is not wanted: the connection closes."""
        self._speakers[session].stop()

    async def aclose(self) -> None:
        await self._pool.aclose()


class Speaker:
    """One session's requests, one after the other, and the receiver of their audio."""

    def __init__(self, endpoint: SynthesisEndpoint, session: Session) -> None:
        self._endpoint = endpoint
        seed = endpoint.trace.header.seed
        self._bodies = {
            turn.turn: request_body(spoken_words(seed, turn), endpoint.target) for turn in session.turns
        }
        self._rate = endpoint.target.sample_rate or RATE
        self._first = session.turns[0].turn
        self._exchange: Exchange | None = None
        self._turn: Turn
        self._status = 0
        self._bytes = 0
        self._due_s: float | None = None
        self.listener: Any = None

    def ask(self, turn: Turn, end_s: float, pool: HttpPool) -> None:
        """Send the request of `turn`, which its user ends at `end_s`."""
        self._turn, self._status, self._bytes = turn, 0, 0
        self._due_s = end_s + self.listener.network_s
        self._exchange = pool.post(self._bodies[turn.turn], self)
        self._note_sent()

    def stop(self) -> None:
        """Want no more of the audio under way."""
        if self._exchange is not None:
            self._exchange.abort()
            self._exchange = None

    def status(self, code: int, at_s: float) -> None:
        self._note_sent()
        self._status = code

    def data(self, chunk: bytes, at_s: float) -> None:
        if self._status != 200:
            return
        before = self._bytes // BYTES
        self._bytes += len(chunk)
        samples = self._bytes // BYTES - before  # a piece may end within one
        if samples:
            self.listener.audio(self._turn.turn, samples / self._rate, at_s)

    def done(self, at_s: float) -> None:
        if self._exchange is None:
            return
        if self._status != 200:
            refused = self._status in FULL and self._turn.turn == self._first
            self._lose(f"http {self._status}", at_s, refused)
        elif not self._bytes:
            self._lose("no audio", at_s)
        else:
            self._exchange = None
            self.listener.reply_done(self._turn.turn, at_s)

    def failed(self, reason: str, at_s: float) -> None:
        self._lose(reason, at_s)

    def _note_sent(self) -> None:
        sent_s = None if self._exchange is None else self._exchange.sent_s
        if self._due_s is not None and sent_s is not None:
            self._endpoint.sends.add("request", self._turn.session, self._due_s, sent_s)
            self._due_s = None

    def _lose(self, reason: str, at_s: float, refused: bool = False) -> None:
        if self._exchange is None:
            return
        self.stop()
        self._endpoint.failures.add(at_s, self._turn.session, self._turn.turn, reason)
        if refused:
            self.listener.rejected(at_s)
        else:
            self.listener.failed(reason, at_s)


def speech_pool(target: TargetParams) -> HttpPool:
    """Connections to its synthesis."""
    token = target.token("text")
    return HttpPool(target.url, {} if token is None else {"Authorization": f"Bearer {token}"})


def request_body(text: str, target: TargetParams) -> bytes:
    """Asks for `text` as speech, streamed."""
    options: dict[str, Any] = {
        "input": text,
        "response_format": "pcm",
        "stream": True,
        "stream_format": "audio",
    }
    for name in ("model", "voice", "sample_rate"):
        if (value := getattr(target, name)) is not None:
            options[name] = value
    return _encode(options)
