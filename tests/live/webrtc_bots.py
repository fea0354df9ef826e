"""A WebRTC peer that only keeps time: a Pipecat bot as far as turns need it, which neither decodes nor encodes.

Frames of digital silence are short, except the first one after speech, which has its last sound: a turn ends a frame
before the first short one begins. Speech over an answer cuts it. A packet of an answer is one frame.
"""

import asyncio
import json
from typing import Any

import aiortc
import av
import numpy as np

from harness.live.endpoints.transport.rtp import FRAME_MS, RATE
from harness.live.endpoints.transport.webrtc import Voice, codec
from harness.live.null_server.null_voice import tone
from harness.live.null_server.pace import Answer, Pace

FRAME_S = FRAME_MS / 1e3
SILENT = 16
"""Bytes of the longest frame that is silence: an encoder of 16 kHz writes 8 for zeros, and 37 to 100 for a voice."""


def encoded(encoder: Any, pcm: bytes) -> list[bytes]:
    """The frames of 16-bit samples, whose length is a whole number of frames."""
    size, frames = 2 * FRAME_MS * encoder.sample_rate // 1000, []
    for at in range(0, len(pcm), size):
        samples = np.frombuffer(pcm[at : at + size], "<i2")[None]
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.sample_rate = encoder.sample_rate
        frames += [bytes(packet) for packet in encoder.encode(frame)]
    return frames


def _rtvi(kind: str) -> str:
    return json.dumps({"label": "rtvi-ai", "type": kind, "id": "null", "data": {"version": "2.0.0"}})


class Bot:
    """A call. `tones`: the frames of an answer."""

    def __init__(self, pace: Pace, tones: list[bytes]) -> None:
        self._pace, self._tones, self._speaks = pace, tones, False
        self._answer: Answer | None = None
        self._channel: Any = None
        self._voice = Voice()
        self._peer = aiortc.RTCPeerConnection(aiortc.RTCConfiguration(iceServers=[]))
        self._peer.on("datachannel", self._opened)
        self._peer.on("connectionstatechange", self._changed)

    async def answer(self, offer: dict[str, str]) -> bytes:
        """Return the answer to an offer, as JSON."""
        peer = self._peer
        await peer.setRemoteDescription(aiortc.RTCSessionDescription(offer["sdp"], offer["type"]))
        peer.addTrack(self._voice)
        peer.getReceivers()[0]._handle_rtp_packet = self._hear  # type: ignore[method-assign]
        await peer.setLocalDescription(await peer.createAnswer())
        said = peer.localDescription
        return json.dumps({"sdp": said.sdp, "type": said.type, "pc_id": "null"}).encode()

    def _opened(self, channel: Any) -> None:
        self._channel = channel
        channel.on("message", self._read)

    def _read(self, text: str) -> None:
        if '"client-ready"' in text:
            self._channel.send(_rtvi("bot-ready"))

    def _changed(self) -> None:
        if self._peer.connectionState in ("failed", "closed") and self._answer is not None:
            self._answer.cancel()

    async def _hear(self, packet: Any, arrival_time_ms: int) -> None:
        read_s, speech = self._pace.loop.time(), len(packet.payload) > SILENT
        if speech and not self._speaks and self._answer is not None and not self._answer.over:
            self._answer.cancel()
            self._channel.send(_rtvi("bot-interrupted"))
        if self._speaks and not speech:
            self._answer = Answer(self._pace, read_s - 2 * FRAME_S, self._pace.packets, self._say)
        self._speaks = speech

    def _say(self, k: int) -> None:
        if k == 0:
            self._channel.send(_rtvi("bot-started-speaking"))
        self._voice.say(self._tones[k % len(self._tones)])
        if k + 1 == self._pace.packets:
            self._channel.send(_rtvi("bot-stopped-speaking"))


async def listen(pace: Pace) -> tuple[asyncio.Server, str]:
    """A server of bots and its url. Each connection brings one offer."""
    tones = encoded(codec("w", RATE), tone(1.0, RATE))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length: ")[2].split()[0])
        said = await Bot(pace, tones).answer(json.loads(await reader.readexactly(length)))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(said) + said)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/api/offer"
