"""Telephone networks that call a voice agent: Twilio's Media Streams (twilio.com/docs/voice/media-streams/
websocket-messages) and Telnyx's media streaming (developers.telnyx.com, stream-call-media-over-websocket).

The client is the network: it connects to the agent, says whose call begins, and sends G.711 in frames of 20 ms. The
agent's audio is buffered and played; a mark comes back when the audio before it has been played, and `clear` drops
what has not. No message says that a reply begins or ends.
"""

import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import uuid4

import msgspec

from harness.live.endpoints.dialects.audio_format import ULAW, as_ulaw, length
from harness.live.endpoints.dialects.dialect import Dialect
from harness.live.endpoints.dialects.events import Audio, Done, Event, Garbage, Mark, Other

FRAME_MS = 20
"""Length of each message of audio, ms. [config: Twilio Media Streams]"""
QUIET_S = 1.0
"""A reply is over after so long. [chosen] The longest usual silence within a conversation (Jefferson 1989)."""
_MEDIA = b'{"event":"media"'
_SILENCE = 0xFF
"""A sample of u-law."""


def _json(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Twilio(Dialect):
    """Twilio's protocol. `--session` has the custom parameters of a call."""

    name: ClassVar[str] = "twilio"
    input_rate: ClassVar[int] = 8000
    ready_on: ClassVar[str] = ""
    answers_hello: ClassVar[bool] = False
    turn_detection: ClassVar[tuple[str, ...]] = ("server",)
    fixed: ClassVar[tuple[str, ...]] = ("model", "voice", "silence_duration_ms")
    speech_stops: ClassVar[bool] = False
    quiet_s: ClassVar[float | None] = QUIET_S
    settings: ClassVar[tuple[str, ...]] = ("start", "customParameters")

    stream_id: ClassVar[str] = "streamSid"
    number: ClassVar[str] = "sequenceNumber"

    def cannot(self, typed: bool) -> str | None:
        if self.target.chunk_ms != FRAME_MS:
            return f"the network sends frames of {FRAME_MS} ms; leave chunk_ms out"
        return super().cannot(typed)

    def hello(self) -> list[bytes]:
        start = {
            "accountSid": "AC" + 32 * "0",
            "tracks": ["inbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
            "customParameters": {},
        }
        return [_json(event="connected", protocol="Call", version="1.0.0"), _json(event="start", start=start)]

    def append(self, pcm: bytes) -> bytes:
        frame = as_ulaw(pcm).ljust(FRAME_MS * 8, bytes([_SILENCE]))
        return b'%s,"media":{"track":"inbound","payload":"%s"}}' % (_MEDIA, b64encode(frame))

    def answer(self, event: Event) -> list[bytes]:
        return [_json(event="mark", mark={"name": event.name})] if isinstance(event, Mark) else []

    def goodbye(self) -> list[bytes]:
        return [_json(event="stop", stop={})]

    def missing(self, begun: bool, spoke: bool) -> str:
        return "media"

    def ids(self, stream: str) -> dict[str, str]:
        """Return the ids of a call that its first and last message state, with the stream's."""
        return {"callSid": stream.replace("MZ", "CA", 1)}

    def writer(self) -> Callable[[bytes], bytes]:
        """Return what adds the ids of one call, and the numbers of messages and frames."""
        stream, messages, frames = f"MZ{uuid4().hex}", 0, 0
        tail = b'"%s":"%%d","%s":"%s"}' % (self.number.encode(), self.stream_id.encode(), stream.encode())

        def write(message: bytes) -> bytes:
            nonlocal messages, frames
            if message.startswith(b'{"event":"connected"'):
                return message
            messages += 1
            if message.startswith(_MEDIA):
                frames += 1
                place = b',"chunk":"%d","timestamp":"%d"},' % (frames, FRAME_MS * (frames - 1))
                return message[:-2] + place + tail % messages
            event = json.loads(message)
            if event["event"] in ("start", "stop"):
                event[event["event"]] |= self.ids(stream)
            if event["event"] == "start":
                event["start"][self.stream_id] = stream
            return _json(**event, **{self.number: str(messages), self.stream_id: stream})

        return write

    def reader(self) -> Callable[[bytes], Event]:
        return _read


@dataclass(frozen=True)
class Telnyx(Twilio):
    """Telnyx's protocol: the same with other names."""

    name: ClassVar[str] = "telnyx"
    settings: ClassVar[tuple[str, ...]] = ("start", "custom_parameters")
    stream_id: ClassVar[str] = "stream_id"
    number: ClassVar[str] = "sequence_number"

    def hello(self) -> list[bytes]:
        format = {"encoding": "PCMU", "sample_rate": 8000, "channels": 1}
        start = {"user_id": "rehearsal", "media_format": format, "custom_parameters": {}}
        return [_json(event="connected", version="1.0.0"), _json(event="start", start=start)]

    def ids(self, stream: str) -> dict[str, str]:
        return {"call_control_id": stream.replace("MZ", "v3:", 1)}


class _Media(msgspec.Struct):
    payload: str


class _Named(msgspec.Struct):
    name: str


class _Message(msgspec.Struct):
    event: str
    media: _Media | None = None
    mark: _Named | None = None


_decode = msgspec.json.Decoder(_Message).decode
_CLEARED, _OTHER = Done(None, "cancelled"), Other()


def _read(data: bytes) -> Event:
    """Return the meaning of an agent's message."""
    try:
        message = _decode(data)
        if message.event == "media" and message.media is not None:
            return Audio(None, None, length(message.media.payload), ULAW, message.media.payload)
        if message.event == "mark" and message.mark is not None:
            return Mark(message.mark.name[:256])
        return _CLEARED if message.event == "clear" else _OTHER
    except (ValueError, RecursionError, msgspec.DecodeError):
        return Garbage()
