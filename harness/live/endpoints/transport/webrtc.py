"""Calls over WebRTC with aiortc: an offer over HTTP, Opus both ways, and a data channel.

Sound is encoded when it is sent, and decoded when the jitter buffer plays it: aiortc's own receiver waits for four
packets, whenever they come, and does not say when they came. That takes three private names of aiortc 1.16:
`_handle_rtp_packet`, `__remote_streams` and `_send_rtp` (`tests/live/test_webrtc.py`).
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from itertools import count
from typing import Any, NamedTuple

import aiortc
import av
import numpy as np
from aiortc.rtcrtpreceiver import StreamStatistics
from aiortc.rtp import is_rtcp
from av.error import FFmpegError

from harness.live.endpoints.transport.rtp import AUDIO, FRAME_MS, RATE, JitterBuffer, Path
from harness.live.endpoints.transport.websocket import ABNORMAL, ConnectFailed, Receiver

BIT_RATE, COMPLEXITY = 32_000, "5"
"""Bits/s and complexity (0 to 10) of the encoder. [chosen] RFC 7587 recommends 28 to 40 kbit/s."""


class Line(NamedTuple):
    """The call and its network. `channel`: name of the data channel; `last`: in a message about the end of sound that
    has been sent, which is handed over when that has been played. `rate`: samples/s to send; `buffer_s`: delay of
    the jitter buffer; `seed`, `loss`, `jitter_s`: as of `rtp.Path`, each way."""

    channel: str
    last: bytes
    rate: int
    buffer_s: float
    seed: int
    loss: float
    jitter_s: float


class Voice(aiortc.MediaStreamTrack):
    """A track of frames that are encoded already."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._packets: asyncio.Queue[av.Packet] = asyncio.Queue()
        self._now = asyncio.get_running_loop().time
        self._begun_s, self._ticks = self._now(), 0

    def say(self, opus: bytes) -> None:
        """Send a frame in the loop's next turn. A pause of the speaker is one of the stream too."""
        packet, frame = av.Packet(opus), FRAME_MS * RATE // 1000
        self._ticks = max(self._ticks, round((self._now() - self._begun_s) * RATE) - frame)
        packet.pts, packet.time_base = self._ticks, Fraction(1, RATE)
        self._ticks += frame
        self._packets.put_nowait(packet)

    async def recv(self) -> Any:
        return await self._packets.get()


class WebRTC:
    """A call, with the methods of a `WebSocket`."""

    def __init__(self, receiver: Receiver, line: Line) -> None:
        self._receiver, self._line = receiver, line
        self._loop = asyncio.get_running_loop()
        self._to, self._from = (Path(line.seed, way, line.loss, line.jitter_s) for way in ("to", "from"))
        self._sent, self._first = count(), -1
        """Numbers of the packets to the server, and the first RTP sequence number from there."""
        self._peer = aiortc.RTCPeerConnection(aiortc.RTCConfiguration(iceServers=[]))
        self._channel = self._peer.createDataChannel(line.channel)
        self._voice, self._buffer = Voice(), JitterBuffer(line.buffer_s, self._play)
        self._decoder, self._encoder = codec("r", RATE), codec("w", line.rate)
        self._stream: StreamStatistics | None = None
        self._opened, self._closing = asyncio.Event(), False
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, answered: Callable[[str], str]) -> None:
        """Call. Return when the data channel is open."""
        peer = self._peer
        sound: Any = peer.addTransceiver(self._voice, direction="sendrecv")
        able: Any = aiortc.RTCRtpSender.getCapabilities("audio")
        sound.setCodecPreferences([each for each in able.codecs if each.mimeType == "audio/opus"])
        self._streams: dict[int, StreamStatistics] = sound.receiver._RTCRtpReceiver__remote_streams
        sound.receiver._handle_rtp_packet = self._came
        self._channel.on("open", self._opened.set)
        self._channel.on("message", self._read)
        self._channel.on("close", self._ended)
        peer.on("connectionstatechange", self._changed)
        await peer.setLocalDescription(await peer.createOffer())
        answer = await asyncio.to_thread(answered, peer.localDescription.sdp)
        try:
            await peer.setRemoteDescription(aiortc.RTCSessionDescription(answer, "answer"))
        except Exception as error:  # of many kinds, as the answer is whatever the server says
            raise ConnectFailed(f"no answer to the offer: {error!r}") from None
        self._send_rtp = sound.sender.transport._send_rtp
        sound.sender.transport._send_rtp = self._leaves
        await self._opened.wait()
        if self._closing:
            raise ConnectFailed("the server ended the connection")

    def send(self, message: bytes) -> None:
        """Send sound of up to a frame, or a text."""
        if message.startswith(AUDIO):
            pcm = message[1:].ljust(2 * FRAME_MS * self._line.rate // 1000, b"\0")
            frame = av.AudioFrame.from_ndarray(np.frombuffer(pcm, "<i2")[None], format="s16", layout="mono")
            frame.sample_rate = self._line.rate
            for packet in self._encoder.encode(frame):
                self._voice.say(bytes(packet))
        elif self._channel.readyState == "open":
            self._channel.send(message.decode())

    def statistics(self) -> dict[str, float]:
        """Return the RTP statistics of what came (RFC 3550) and the buffer's, by kinds of events; times in s."""
        stream, buffer = self._stream, self._buffer
        if stream is None:
            return {}
        counted = {"packets": stream.packets_expected, "lost": stream.packets_lost, "late": buffer.late}
        times_s = {"jitter": stream.jitter / RATE, "buffered": buffer.waited_s / max(1, buffer.played)}
        return {f"rtp_{name}": float(value) for name, value in {**counted, **times_s}.items()}

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Hang up; `Receiver.closed` follows."""
        if not self._closing:
            self._closing = True
            self._start(self._hang_up(code))

    abort = close

    async def _hang_up(self, code: int) -> None:
        await self._peer.close()
        if self._opened.is_set():
            self._receiver.closed(code, "", self._loop.time())
        self._opened.set()

    def _start(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _changed(self) -> None:
        if self._peer.connectionState in ("failed", "closed"):
            self._ended()

    def _ended(self) -> None:
        """Note the end. A peer that no longer answers closes the channel too, and the connection is `closed` then."""
        sctp: Any = self._peer.sctp
        lost = "failed" in (self._peer.connectionState, sctp.transport.transport.state)
        self.close(ABNORMAL if lost else 1000)

    def _read(self, text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        delay_s = self._line.buffer_s + self._line.jitter_s if self._line.last in data else 0.0
        self._loop.call_later(delay_s, self._receiver.message, data, self._loop.time() + delay_s)

    async def _came(self, packet: Any, arrival_time_ms: int) -> None:
        if self._first < 0:
            self._first = packet.sequence_number
        delay_s = self._from.delay_s((packet.sequence_number - self._first) % 2**16)
        if delay_s is not None:
            self._loop.call_later(delay_s, self._arrived, packet)

    def _arrived(self, packet: Any) -> None:
        if self._stream is None:  # the reports to the server have it too
            self._stream = self._streams[packet.ssrc] = StreamStatistics(RATE)
        if packet.ssrc in self._streams:
            self._stream.add(packet)
            self._buffer.add(packet.sequence_number, packet.timestamp, packet.payload, self._loop.time())

    def _play(self, payload: bytes, at_s: float) -> None:
        with suppress(FFmpegError):  # no sound, as if it had not come; an empty packet would end the decoder
            for frame in self._decoder.decode(av.Packet(payload)) if payload else ():
                self._receiver.message(AUDIO + frame.to_ndarray().tobytes(), at_s)

    async def _leaves(self, data: bytes) -> None:
        if is_rtcp(data):
            await self._send_rtp(data)
        elif (delay_s := self._to.delay_s(next(self._sent))) is not None:
            self._loop.call_later(delay_s, lambda: self._closing or self._start(self._deliver(data)))

    async def _deliver(self, data: bytes) -> None:
        with suppress(ConnectionError):  # it is lost, which `_ended` notes
            await self._send_rtp(data)


async def connect(receiver: Receiver, line: Line, timeout_s: float, answered: Callable[[str], str]) -> WebRTC:
    """Call a server, whose answer to an offer (SDP) `answered` brings. ICE has the addresses of this host, without STUN
    or TURN. ConnectFailed after `timeout_s`, or as soon as it is clear that there will be no connection."""
    call = WebRTC(receiver, line)
    try:
        async with asyncio.timeout(timeout_s):
            await call.open(answered)
        return call
    except BaseException as error:
        call.close()
        if isinstance(error, TimeoutError):
            raise ConnectFailed(f"no connection within {timeout_s:g} s") from None
        raise


def codec(mode: Any, rate: int) -> Any:
    """Return an encoder (w) or a decoder (r) of one voice in Opus; `rate`: samples/s."""
    opus: Any = av.CodecContext.create("libopus", mode)
    opus.format, opus.layout, opus.sample_rate = "s16", "mono", rate
    if mode == "w":
        opus.bit_rate, opus.time_base = BIT_RATE, Fraction(1, rate)
        opus.options = {"application": "voip", "compression_level": COMPLEXITY}
    return opus
