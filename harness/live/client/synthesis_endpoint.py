"""Speech synthesis over HTTP (`POST /v1/audio/speech`: text in, audio out as it is made), as the clients of
`harness.client.session` see it.

A turn asks for its reply's words as speech: as an agent would, whose model has written them. Nothing of what the user
says is sent. Audio is 16-bit mono, without a container, so each piece that comes is so many seconds. Fields: OpenAI's
speech API; `stream`, which vLLM-Omni 0.30 and SGLang-Omni 0.1.9 want set (`CreateSpeechRequest` of both).
"""

from __future__ import annotations

from typing import Any

import msgspec

from harness.live.client.http_endpoint import HttpEndpoint, Requests
from harness.live.client.prompts import spoken_words
from harness.live.dialects.dialect import RATE
from harness.live.target import TargetParams
from harness.live.transport.http import HttpPool
from workloads.trace import Session, Turn

BYTES = 2
"""Of a sample."""
_encode = msgspec.json.Encoder().encode


class SynthesisEndpoint(HttpEndpoint["Speaker"]):
    """Speech of what the replies say."""

    def _pool_of(self, target: TargetParams) -> HttpPool:
        return speech_pool(target)

    def _make(self, session: Session) -> Speaker:
        return Speaker(self, session)


class Speaker(Requests):
    """One session's requests for speech."""

    def __init__(self, endpoint: SynthesisEndpoint, session: Session) -> None:
        super().__init__(endpoint, session)
        seed, target = endpoint.trace.header.seed, endpoint.target
        self._bodies = {turn.turn: request_body(spoken_words(seed, turn), target) for turn in session.turns}
        self._rate = target.sample_rate or RATE

    def _begin(self, turn: Turn) -> bytes:
        self._bytes = 0
        return self._bodies[turn.turn]

    def _read(self, chunk: bytes, at_s: float) -> None:
        before = self._bytes // BYTES
        self._bytes += len(chunk)
        samples = self._bytes // BYTES - before  # a piece may end within one
        if samples:
            self.listener.audio(self._turn.turn, samples / self._rate, at_s)

    def _lacks(self) -> str:
        return "" if self._bytes else "no audio"


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
