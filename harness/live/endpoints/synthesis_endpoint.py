"""Speech synthesis over HTTP (`POST /v1/audio/speech`: text in, audio out as it is made), as the clients of
`harness.client.session` see it.

A turn asks for its reply's words as speech: as an agent would, whose model has written them. Nothing of what the user
says is sent. Audio is samples, or a WAV of them, so each piece has a length in seconds. Fields: OpenAI's
speech API; `stream`, which vLLM-Omni 0.30 and SGLang-Omni 0.1.9 want set (`CreateSpeechRequest` of both).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from harness.live.endpoints.dialects.audio_format import AudioFormat, stated
from harness.live.endpoints.dialects.detect import resolve
from harness.live.endpoints.dialects.speech_body import SpeechBody
from harness.live.endpoints.dialects.synthesis import Sound, Synthesis
from harness.live.endpoints.http_endpoint import HttpEndpoint, Requests
from harness.live.endpoints.loudness import SILENT, Loudness
from harness.live.endpoints.prompts import spoken_words
from harness.live.endpoints.request_shape import shaped
from harness.live.endpoints.target import TargetParams
from harness.live.endpoints.transport.http import Exchange, HttpPool
from harness.live.endpoints.turn_endpoint import TurnConnection, TurnEndpoint
from workloads.trace import Session, Turn

_encode = msgspec.json.Encoder().encode


class SynthesisEndpoint(HttpEndpoint["Speaker"]):
    """An endpoint that speaks the text of the replies."""

    def _pool_of(self, target: TargetParams) -> HttpPool:
        return HttpPool(target.url, target.request_headers(), target.route())

    def _make(self, session: Session) -> Speaker:
        return Speaker(self, session)


class Speaker(Requests):
    """The speech requests of one session."""

    def __init__(self, endpoint: SynthesisEndpoint, session: Session) -> None:
        super().__init__(endpoint, session)
        seed, target = endpoint.trace.header.seed, endpoint.target
        self._bodies = {turn.turn: request_body(spoken_words(seed, turn), target) for turn in session.turns}
        self._asked = AudioFormat("pcm", target.sample_rate)

    def _begin(self, turn: Turn) -> bytes:
        self._sound, self._loudness = Sound(), Loudness()
        return self._bodies[turn.turn]

    def status(self, code: int, at_s: float) -> None:
        super().status(code, at_s)
        assert self._exchange is not None
        headers = self._exchange.headers
        self._format = stated_by(headers).over(self._asked)
        self._content = SpeechBody(headers.get("content-type", ""))

    def _read(self, chunk: bytes, at_s: float) -> None:
        try:
            samples, format = self._sound.feed(self._content.sound(chunk), self._format)
        except ValueError:
            self._facts.error = "garbage"
            self._settle(at_s)
            return
        if format.unread is not None:
            self._facts.unread = format.unread
            self._settle(at_s)
        elif samples:
            self._facts.output = True
            if not self._loudness.audible:
                self._loudness.add(samples, format)
            self.listener.audio(self._turn.turn, len(samples) / format.bytes_per_s, at_s)

    def _read_end(self, at_s: float, cut: str) -> None:
        self._facts.error, self._facts.lost, self._facts.ended = self._content.error, cut, not cut

    def _missing(self) -> str:
        return "end of the audio" if self._facts.output else "audio"

    def _end(self, exchange: Exchange, at_s: float) -> None:
        self._note_silence(at_s, whole=True)
        super()._end(exchange, at_s)

    def cut(self, at_s: float) -> None:
        if self._exchange is not None:
            self._note_silence(at_s, whole=False)
        super().cut(at_s)

    def timed_out(self) -> None:
        if self._facts.status:
            self._facts.error = self._content.error
        super().timed_out()

    def _note_silence(self, at_s: float, whole: bool) -> None:
        """Log that nobody could hear the reply, if so."""
        level = self._loudness.silent_dbfs(whole)
        if level is not None:
            turn = self._turn
            self._endpoint.log.event(at_s, SILENT, turn.session, turn.turn, value=level)


def stated_by(headers: Mapping[str, str]) -> AudioFormat:
    """Return the audio format that an answer's headers state: Content-Type, and others such as X-Sample-Rate."""
    return stated({name.removeprefix("x-"): value for name, value in headers.items()})


def request_body(text: str, target: TargetParams) -> bytes:
    """Return the request of `text` as speech, streamed."""
    options: dict[str, Any] = {"input": text, "response_format": "pcm", "stream": True, "stream_format": "audio"}
    for name in ("model", "voice", "sample_rate"):
        if (value := getattr(target, name)) is not None:
            options[name] = value
    return _encode(shaped(options, target.body_names, target.extra_body))


class SynthesisStreamEndpoint(TurnEndpoint):
    """An endpoint of streamed synthesis. Implements `harness.client.session.Server`. Calls of a client neither block
    nor raise."""

    async def prepare(self) -> None:
        """Prepare before time 0. UserError where the target cannot be reached."""
        self.target = await resolve(self.target)
        dialect = Synthesis(self.target.model_copy(update={"turn_detection": "client"}))
        self._speak_in(dialect, "turns")

    def _make(self, session: int) -> TurnConnection:
        return SynthesisConnection(self._context, session)

    def speech_start(self, turn: Turn) -> None:
        """Do nothing: speech synthesis does not listen."""


class SynthesisConnection(TurnConnection):
    """The utterances of one session."""

    def commit(self, turn: Turn, due_s: float, seed: int) -> None:
        """Say the reply of `turn`, which was to begin here at `due_s`: at once, or word by word."""
        self.turn = turn.turn
        self.await_reply(turn.turn)
        text = spoken_words(seed, turn)
        dialect = cast(Synthesis, self.context.dialect)
        pieces, gap_s = dialect.pieces(text), 1 / (dialect.target.words_per_s or float("inf"))

        def say(k: int, begin_s: float) -> None:
            while k < len(pieces):
                at_s = begin_s + k * gap_s
                if at_s > self._loop.time():
                    self._loop.call_at(at_s, say, k, begin_s)
                    return
                self.say("text", [pieces[k]], at_s)
                k += 1
            self.say("commit", [dialect.flush()], begin_s + (k - 1) * gap_s)

        self.when_ready(lambda ready_s: say(0, max(due_s, ready_s)))
