"""Speech synthesis over a WebSocket, /v1/audio/speech/stream (vllm_omni 0.30: entrypoints/openai/
serving_speech_stream.py; sglang_omni 0.1.9: serve/speech_ws.py): text in pieces, audio as binary messages.

The session is configured once and each flush is an utterance. vLLM-Omni does not answer the configuration, SGLang-Omni
does; both answer an utterance with the audio of its sentences and `session.done`.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from harness.live.endpoints.dialects.audio_format import AudioFormat, stated
from harness.live.endpoints.dialects.chat import any_json
from harness.live.endpoints.dialects.dialect import CLOSE, Cut, Dialect, encode
from harness.live.endpoints.dialects.events import Audio, Done, Event, Failure, Garbage, Other, UnreadAudio
from harness.live.endpoints.dialects.parsing import format_of_wav
from harness.live.endpoints.dialects.speech_body import is_text, text_reason
from workloads.audio import wav


class _Message(msgspec.Struct):
    type: str = ""
    message: str | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")


class _Error(msgspec.Struct):
    code: str | int | None = None
    type: str | None = None
    message: str | None = None


_LEAST = 16
"""Bytes of the shortest message that is a text if it can be one and is not JSON. [chosen]"""
_decode = msgspec.json.Decoder(_Message).decode
_decode_error = msgspec.json.Decoder(_Error | str | None).decode


@dataclass(frozen=True)
class Synthesis(Dialect):
    """Speech synthesis: text in; audio out in the format that the server states, else 16-bit PCM at the requested rate,
    else at 24 kHz."""

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

    def pieces(self, text: str) -> list[bytes]:
        """Return one message a word, the last with a full stop."""
        words = text.split()
        return [encode("input.text", text=f"{word} ") for word in words[:-1]] + [
            encode("input.text", text=f"{word}.") for word in words[-1:]
        ]

    def flush(self) -> bytes:
        return encode("input.done")

    def interrupt(self, cut: Cut) -> Any:
        """Return no message: the protocol has none."""
        return CLOSE

    def missing(self, begun: bool, spoke: bool) -> str:
        return "session.done" if spoke else "audio"

    def reader(self) -> Callable[[bytes], Event]:
        asked = AudioFormat("pcm", self.target.sample_rate)
        sound, stated_format = Sound(), asked

        def read(data: bytes) -> Event:
            """Return the meaning of a message. Texts are JSON objects with a type, or errors; anything else is
            samples, which a few bytes may be though they can be read."""
            nonlocal sound, stated_format
            message = None
            if is_text(data):
                with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    message = _decode(data)
                if (message is None and len(data) >= _LEAST) or (message is not None and not message.type):
                    return Garbage(text_reason(data))
            if message is None:
                try:
                    samples, format = sound.feed(data, stated_format)
                except ValueError:
                    return Garbage()
                if format.unread:
                    return UnreadAudio(None, format)
                return Audio(None, None, len(samples), format, samples)
            if message.type in ("audio.start", "session.configured"):
                sound, stated_format = Sound(), stated(any_json(data)).over(stated_format)
            if message.type == "session.done":
                return Done(None, "completed")
            if message.type == "error":
                return _failure(message)
            return Other()

        return read


class Sound:
    """The bytes of an answer's audio: samples, or a WAV with their format in its header."""

    def __init__(self) -> None:
        self._begun = b""
        self._wav: wav.Stream | None = None
        self._plain = False

    def feed(self, data: bytes, format: AudioFormat) -> tuple[bytes, AudioFormat]:
        """Return the samples in its next piece, and their format where the server states `format`. ValueError for a WAV
        whose header does not end."""
        if self._plain:
            return data, format
        if self._wav is None:
            self._begun += data
            if len(self._begun) < 12 and wav.begins(self._begun):
                return b"", AudioFormat("pcm")
            data, self._begun = self._begun, b""
            if not wav.begins(data):
                self._plain = True
                name = next((name for begin, name in _CONTAINERS.items() if data.startswith(begin)), None)
                return data, AudioFormat(name) if name else format
            self._wav = wav.Stream()
        samples = self._wav.feed(data)
        if self._wav.header is None:
            return samples, AudioFormat("pcm")
        return samples, format_of_wav(self._wav.header)


_CONTAINERS = {b"ID3": "mp3", b"OggS": "ogg", b"fLaC": "flac", b"\x1aE\xdf\xa3": "webm"}
"""First bytes of unsupported files, and their formats. [config: their specifications]"""


def _failure(message: _Message) -> Failure:
    try:
        error = _decode_error(message.error)
    except msgspec.DecodeError:
        return Failure("unknown", message.message or "")
    if isinstance(error, _Error):
        return Failure(str(error.code or error.type or "unknown"), error.message or message.message or "")
    return Failure("unknown", error or message.message or "")
