"""Pipecat's RTVI over a WebSocket (pipecat-ai 1.14: processors/frameworks/rtvi/models.py, observer.py, serializers/
protobuf.py, frames/protobufs/frames.proto; protocol 2.2).

Binary messages, each a frame in protobuf: raw audio, or an RTVI message as JSON. The bot's VAD ends turns and cuts
replies; a reply is from the first word of its model, or from when the bot begins to speak, to when it stops.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, ClassVar

import msgspec

from harness.live.endpoints.dialects.audio_format import NOTHING, RATES, AudioFormat, stated
from harness.live.endpoints.dialects.chat import any_json
from harness.live.endpoints.dialects.dialect import Dialect
from harness.live.endpoints.dialects.events import (
    Audio,
    Done,
    Event,
    Failure,
    Garbage,
    Other,
    Ready,
    SpeechStarted,
    SpeechStopped,
    Started,
    Text,
    UnreadAudio,
)
from harness.live.endpoints.dialects.parsing import samples_of_wav
from workloads.trace import Turn

VERSION = "2.0.0"
"""Version of RTVI that the client asks for. A bot takes any version with its own major number."""
_AUDIO, _MESSAGE, _INTERRUPTION = 2, 4, 5
"""Fields of Frame."""
_SOUND, _RATE, _CHANNELS, _DATA = 3, 4, 5, 1
"""Field numbers: the first three of AudioRawFrame, the last of MessageFrame."""
_MOST_FIELDS = 64
"""Fields that are read of one message. [chosen] Frames have up to eight."""


class _Data(msgspec.Struct):
    text: str | None = None
    error: str | None = None
    fatal: bool = True


class _Rtvi(msgspec.Struct):
    label: str = ""
    type: str = ""
    data: _Data | None = None


class _Bare(msgspec.Struct):
    type: str = ""


_decode = msgspec.json.Decoder(_Rtvi).decode
_decode_bare = msgspec.json.Decoder(_Bare).decode


@dataclass(frozen=True)
class RTVI(Dialect):
    """Pipecat's protocol: 16 kHz in, its own default; each frame has the rate of the answer."""

    name: ClassVar[str] = "rtvi"
    input_rate: ClassVar[int] = 16_000
    ready_on: ClassVar[str] = "bot-ready"
    turn_detection: ClassVar[tuple[str, ...]] = ("server",)
    fixed: ClassVar[tuple[str, ...]] = ("model", "voice", "silence_duration_ms")
    speech_stops: ClassVar[bool] = False
    binary: ClassVar[bool] = True
    waits: ClassVar[bool] = True

    def hello(self) -> list[bytes]:
        about = {"library": "rehearsal"}
        return [message("client-ready", {"version": VERSION, "about": about})]

    def append(self, pcm: bytes) -> bytes:
        head = _field(_SOUND, pcm)
        return _field(_AUDIO, head + _number(_RATE, self.input_rate) + _number(_CHANNELS, 1))

    def typed_turn(self, turn: Turn, text: str) -> list[bytes]:
        speaks = self.target.modalities == "audio"
        options = {"run_immediately": True, "audio_response": speaks}
        return [message("send-text", {"content": text, "options": options})]

    def missing(self, begun: bool, spoke: bool) -> str:
        writes = self.target.modalities == "text"
        if not begun:
            return "bot-llm-started" if writes else "bot-started-speaking"
        return _ends_on(writes) if spoke else "bot-llm-text" if writes else "audio"

    def reader(self) -> Callable[[bytes], Event]:
        return _Reader(self.target.modalities == "text")


def _ends_on(writes: bool) -> str:
    return "bot-llm-stopped" if writes else "bot-stopped-speaking"


class _Reader:
    """The reader of one bot's frames. RTVI does not name replies, so they are numbered here."""

    def __init__(self, writes: bool) -> None:
        self._ends_on = _ends_on(writes)
        self._replies = 0
        self._open = False
        self._format = NOTHING

    def __call__(self, data: bytes) -> Event:
        try:
            if data.startswith(b"{"):  # over WebRTC, which needs no frames
                return self._message(data)
            [(field, body)] = _fields(data)
            if field == _AUDIO:
                return self._audio(_read(body))
            if field == _INTERRUPTION:
                return self._end("cancelled")
            return self._message(_read(body)[_DATA]) if field == _MESSAGE else Other()
        except (
            ValueError,
            KeyError,
            IndexError,
            TypeError,
            AttributeError,
            OverflowError,
            RecursionError,
            msgspec.DecodeError,
            UnicodeDecodeError,
        ):
            return Garbage()

    @property
    def _id(self) -> str | None:
        return f"reply-{self._replies}" if self._open else None

    def _audio(self, frame: dict[int, Any]) -> Event:
        pcm = frame.get(_SOUND, b"")
        frame_format = _format(frame.get(_RATE), frame.get(_CHANNELS))
        if (samples := samples_of_wav(pcm)) is not None:  # with add_wav_header each frame is one
            pcm, frame_format = samples
        format = frame_format.over(self._format)
        return UnreadAudio(self._id, format) if format.unread else Audio(self._id, None, len(pcm), format, pcm)

    def _message(self, data: bytes) -> Event:
        try:
            rtvi = _decode(data)
        except msgspec.ValidationError:  # of a type whose data has another shape
            return Other() if _decode_bare(data).type else Garbage()
        kind, about = rtvi.type, rtvi.data or _Data()
        if kind in ("bot-ready", "config"):
            self._format = _configured(data).over(self._format)
        if kind in ("bot-llm-started", "bot-started-speaking"):
            return self._begin(again=kind == "bot-llm-started")
        if kind == self._ends_on:
            return self._end("completed")
        if kind == "bot-interrupted":
            return self._end("cancelled")
        if kind == "bot-llm-text" and about.text:
            return Text(self._id, 1, len(about.text))
        if kind == "error":
            return Failure("bot", about.error or "") if about.fatal else Other()
        if kind == "error-response":
            return Failure("error-response", about.error or "")
        return _SIGNALS.get(kind, Other() if kind else Garbage())

    def _begin(self, again: bool) -> Event:
        """Begin a reply. `again`: the model begins anew, and its earlier output is void."""
        if self._open and not again:
            return Other()
        self._replies += 1
        self._open = True
        return Started(self._id)

    def _end(self, status: str) -> Event:
        if not self._open:
            return Other()
        ended, self._open = self._id, False
        return Done(ended, status)


@lru_cache(16)
def _format(rate: Any, channels: Any) -> AudioFormat:
    """Return the format of a frame. ValueError where a field of it is no number."""
    if isinstance(rate, bytes) or isinstance(channels, bytes):
        raise ValueError("neither a rate nor a number of channels")
    return AudioFormat(f"PCM of {rate} Hz" if rate and rate not in RATES else "pcm", rate or None, channels or None)


def _configured(data: bytes) -> AudioFormat:
    """Return the audio format that a bot states: in its data, or in the options of its services, as RTVI 0.x has
    them."""
    about = any_json(data).get("data") or {}
    services = about.get("config") or []
    options = [option for service in services for option in service.get("options") or []]
    return stated({option["name"]: option.get("value") for option in options} | about)


_SIGNALS: dict[str, Event] = {
    "bot-ready": Ready(),
    "user-started-speaking": SpeechStarted(),
    "user-stopped-speaking": SpeechStopped(),
}


def message(kind: str, data: dict[str, Any]) -> bytes:
    """Return an RTVI message as a frame."""
    text = json.dumps({"label": "rtvi-ai", "type": kind, "id": "rehearsal", "data": data}, separators=(",", ":"))
    return _field(_MESSAGE, _field(_DATA, text.encode()))


def unframed(frame: bytes) -> bytes:
    """Return the message in a frame."""
    return _read(_read(frame)[_MESSAGE])[_DATA]


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _field(field: int, body: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(body)) + body


def _read(data: bytes) -> dict[int, Any]:
    """Return the fields of a protobuf message by their numbers."""
    return dict(islice(_fields(data), _MOST_FIELDS))


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield numbers and lengths-with-bytes of a protobuf message; ValueError or IndexError for anything else."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            part = data[at]
            at += 1
            value |= (part & 0x7F) << shift
            if part < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number has too many bytes")

    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        elif tag & 7 == 2:
            size = varint()
            if at + size > len(data):
                raise ValueError("cut short")
            yield tag >> 3, data[at : at + size]
            at += size
        else:
            raise ValueError("neither a number nor bytes")
