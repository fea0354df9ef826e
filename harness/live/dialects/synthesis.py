"""Speech synthesis over a WebSocket, /v1/audio/speech/stream (vllm_omni 0.30: entrypoints/openai/
serving_speech_stream.py; sglang_omni 0.1.9: serve/speech_ws.py): text in pieces, audio as binary messages.

The session is configured once and each flush is an utterance. vLLM-Omni does not answer the configuration, SGLang-Omni
does; both answer an utterance with the audio of its sentences and `session.done`.
"""

from base64 import b64encode
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from harness.live.dialects.dialect import CLOSE, RATE, Cut, Dialect, encode
from harness.live.dialects.events import Audio, Done, Event, Failure, Garbage, Other
from workloads.trace import Turn


class _Message(msgspec.Struct):
    type: str = ""
    message: str | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")


class _Error(msgspec.Struct):
    code: str | None = None
    type: str | None = None
    message: str | None = None


_decode = msgspec.json.Decoder(_Message).decode
_decode_error = msgspec.json.Decoder(_Error | str | None).decode


@dataclass(frozen=True)
class Synthesis(Dialect):
    """Text in; 16-bit audio out at the rate that is asked for, else 24 kHz."""

    name: ClassVar[str] = "synthesis"
    input_rate: ClassVar[int] = 16_000
    ready_on: ClassVar[str] = ""
    answers_hello: ClassVar[bool] = False

    def hello(self) -> list[bytes]:
        config: dict[str, Any] = {"response_format": "pcm", "stream_audio": True}
        config["split_granularity"] = "sentence"
        for name in ("model", "voice"):
            if (value := getattr(self.target, name)) is not None:
                config[name] = value
        return [encode("session.config", **config)]

    def typed_turn(self, turn: Turn, text: str) -> list[bytes]:
        return [*self.pieces(text), self.flush()]

    def pieces(self, text: str) -> list[bytes]:
        """A message a word, the last with a full stop."""
        words = text.split()
        return [encode("input.text", text=f"{word} ") for word in words[:-1]] + [
            encode("input.text", text=f"{word}.") for word in words[-1:]
        ]

    def flush(self) -> bytes:
        return encode("input.done")

    def end_of_turn(self, turn: Turn) -> list[bytes]:
        return []

    def interrupt(self, cut: Cut) -> Any:
        """There is no message for it."""
        return CLOSE

    def classify(self, data: bytes) -> Event:
        """Samples are what is no JSON object: a text message has a type, and begins with a brace."""
        if not data.startswith(b"{"):
            return self._audio(data)
        try:
            message = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._audio(data)
        if message.type == "session.done":
            return Done(None, "completed")
        if message.type == "error":
            return _failure(message)
        return Other() if message.type else Garbage()

    def _audio(self, data: bytes) -> Event:
        rate = self.target.sample_rate or RATE
        return Audio(None, None, len(data), rate, b64encode(data).decode() if self.target.save_audio else "")


def _failure(message: _Message) -> Failure:
    try:
        error = _decode_error(message.error)
    except msgspec.DecodeError:
        return Failure("unknown", message.message or "")
    if isinstance(error, _Error):
        return Failure(error.code or error.type or "unknown", error.message or message.message or "")
    return Failure("unknown", error or message.message or "")
