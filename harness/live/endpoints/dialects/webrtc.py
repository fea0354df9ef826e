"""Dialects over WebRTC: sound is RTP, everything else is a text of the data channel.

A server sends RTP all the time, and mostly silence. The sound of a reply is from the first audible packet after its
begin to its end; other packets count where they are audible.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from msgspec.structs import replace

from harness.client.duplex_player import audible
from harness.live.endpoints.dialects.audio_format import AudioFormat
from harness.live.endpoints.dialects.dialect import Cut, Dialect
from harness.live.endpoints.dialects.events import Audio, Done, Event, Other, Started
from harness.live.endpoints.dialects.openai import OpenAI
from harness.live.endpoints.dialects.parsing import first_event
from harness.live.endpoints.dialects.rtvi import RTVI, unframed
from harness.live.endpoints.target import OFFERS
from harness.live.endpoints.transport import rtp, websocket
from harness.live.endpoints.transport.get import get
from harness.live.endpoints.transport.limits import MOST_HEAD
from workloads.optional import optional

_FORMAT = AudioFormat("pcm", rtp.RATE, 1)


@dataclass(frozen=True)
class OverWebRTC(Dialect):
    """The common part of dialects over WebRTC. `channel` and `last` as of `transport.webrtc.Line`;
    `as_json`: offers and answers are JSON, not SDP alone."""

    turn_detection: ClassVar[tuple[str, ...]] = ("server",)
    speech_stops: ClassVar[bool] = False
    as_json: ClassVar[bool] = True
    channel: ClassVar[str] = "data"
    last: ClassVar[bytes]

    @classmethod
    def at(cls, url: str) -> bool:
        parts = urlsplit(url)
        return parts.scheme.startswith("http") and parts.path.rstrip("/").endswith(OFFERS[cls.name])

    async def connect(self, receiver: websocket.Receiver) -> Any:
        optional("aiortc", "webrtc")
        from harness.live.endpoints.transport import webrtc

        target = self.target
        buffer_ms = 60.0 if target.jitter_buffer_ms is None else target.jitter_buffer_ms  # [chosen] three packets
        loss, jitter_ms = target.packet_loss or 0.0, target.packet_jitter_ms or 0.0
        sound = self.input_rate, buffer_ms / 1e3
        line = webrtc.Line(self.channel, self.last, *sound, receiver.seed, loss, jitter_ms / 1e3)
        return await webrtc.connect(receiver, line, target.connect_timeout_s, self._answered)

    def _answered(self, sdp: str) -> str:
        """Return the server's answer to an offer. ConnectFailed without one."""
        target, kind = self.target, "json" if self.as_json else "sdp"
        body = (json.dumps({"sdp": sdp, "type": "offer"}) if self.as_json else sdp).encode()
        headers, limit_s = {"Content-Type": f"application/{kind}", **self.headers()}, target.connect_timeout_s
        try:
            status, _, answer, cut = get(
                self.url(), timeout_s=limit_s, most_bytes=MOST_HEAD, headers=headers, route=target.route(), body=body
            )
            if cut or not 200 <= status < 300:
                raise websocket.ConnectFailed(cut or f"HTTP status {status}", status)
            return json.loads(answer)["sdp"] if self.as_json else answer.decode()
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise websocket.ConnectFailed(str(error) or type(error).__name__) from None

    def cannot(self, typed: bool) -> str | None:
        if self.target.chunk_ms != rtp.FRAME_MS:
            return f"a packet has {rtp.FRAME_MS} ms; leave chunk_ms out"
        return super().cannot(typed)

    def append(self, pcm: bytes) -> bytes:
        return rtp.AUDIO + pcm

    def reader(self) -> Callable[[bytes], Event]:
        return _Call(super().reader())


@dataclass(frozen=True)
class OpenAIWebRTC(OverWebRTC, OpenAI):
    """OpenAI's protocol over WebRTC. The server knows what has been played, and cuts replies itself."""

    name: ClassVar[str] = "openai_webrtc"
    mark: ClassVar[str | None] = None
    turn_detection: ClassVar[tuple[str, ...]] = ("server", "semantic")
    as_json: ClassVar[bool] = False
    channel: ClassVar[str] = "oai-events"
    last: ClassVar[bytes] = b'"output_audio_buffer.stopped"'

    def interrupt(self, cut: Cut) -> list[bytes] | Literal["close"]:
        return []


@dataclass(frozen=True)
class RTVIWebRTC(OverWebRTC, RTVI):
    """Pipecat's protocol over its SmallWebRTC transport."""

    name: ClassVar[str] = "rtvi_webrtc"
    binary: ClassVar[bool] = False
    waits: ClassVar[bool] = False
    last: ClassVar[bytes] = b'"bot-stopped-speaking"'

    def writer(self) -> Callable[[bytes], bytes]:
        return lambda message: message if message.startswith(rtp.AUDIO) else unframed(message)


class _Call:
    """The reader of a call. `read`: the reader of its texts. A reply of OpenAI's ends when its sound has been sent."""

    def __init__(self, read: Callable[[bytes], Event]) -> None:
        self._read = read
        self._reply: Started | None = None  # that has begun and not ended
        self._made: Done | None = None  # its end, while its sound is still being sent
        self._sounds = self._sends = False

    def __call__(self, data: bytes) -> Event:
        if data.startswith(rtp.AUDIO):
            return self._audio(data[1:])
        event, made = self._read(data), self._made
        about = first_event(data) if b"output_audio_buffer." in data else None
        if isinstance(event, Done) and event.status == "completed" and self._sends:
            self._made, event = event, Other()
        elif about is not None and about.type.startswith("output_audio_buffer."):
            self._sends, self._made = about.type.endswith(".started"), None
            if made is not None:
                event = made if about.type.endswith(".stopped") else replace(made, status="cancelled")
        if isinstance(event, (Started, Done)):
            self._reply, self._sounds = event if isinstance(event, Started) else None, False
        return event

    def _audio(self, pcm: bytes) -> Event:
        pcm = pcm[: len(pcm) // 2 * 2]
        if not self._sounds:
            if not audible(len(pcm) / 2 / rtp.RATE, pcm):
                return Other()
            self._sounds = self._reply is not None
        return Audio(self._reply and self._reply.response, None, len(pcm), _FORMAT, pcm)
