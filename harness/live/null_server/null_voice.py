"""The null server's realtime sessions: the OpenAI events over WebSocket as far as turns need them, or frames."""

import base64
import json
from typing import Any

import numpy as np
import picows

from harness.live.null_server.null_session import NullSession
from harness.live.null_server.pace import Answer, Pace

RATE = 24_000  # samples/s, what the protocol says where a session does not
RATE_IN = 16_000  # samples/s that frames are counted in, what dialect rehearsal sends [config]
ECHO_S = 0.02  # as long as the pieces that clients send [config: TargetParams.chunk_ms]

TONE_HZ, TONE_DBFS = 400, -20.0  # of the packets: silence would be a fault of a server [chosen]

_ENVELOPE = len('{"type":"input_audio_buffer.append","audio":""}')


def tone(seconds: float, rate: int) -> bytes:
    """Return a tone of this length, 16 bits."""
    at_s = np.arange(round(seconds * rate)) / rate
    size = 2**0.5 * 10 ** (TONE_DBFS / 20) * 32768
    return (size * np.sin(2 * np.pi * TONE_HZ * at_s)).astype("<i2").tobytes()


def packet_of(seconds: float) -> bytes:
    """Return a tone of this length, as it goes into an event."""
    return base64.b64encode(tone(seconds, RATE))


def _event(kind: str, **fields: Any) -> bytes:
    return json.dumps({"type": kind, **fields}, separators=(",", ":")).encode()


def _audio_delta(response: str, base64_pcm: bytes) -> bytes:
    head = _event("response.output_audio.delta", response_id=response, item_id=f"item_{response}")
    return b'%s,"output_index":0,"content_index":0,"delta":"%s"}' % (head[:-1], base64_pcm)


def _greetings(frame_s: float | None) -> tuple[bytes, bytes]:
    """Return session.created and session.updated."""
    extension = {"version": 1, "serves": "turns" if frame_s is None else "frames", "engine": "null", "device": "none"}
    session = {
        "type": "realtime",
        "id": "sess_null",
        "object": "realtime.session",
        "model": "null",
        "audio": {"output": {"format": {"type": "audio/pcm", "rate": RATE}}},
        "rehearsal": extension | ({} if frame_s is None else {"frame_s": frame_s}),
    }
    return _event("session.created", session=session), _event("session.updated", session=session)


_COMMITTED = _event("input_audio_buffer.committed", event_id="event_committed", item_id="item_user")


def _done(response: str, status: str) -> bytes:
    details = {"text_tokens": 0, "audio_tokens": 0}
    usage = {"total_tokens": 0, "input_tokens": 0, "output_tokens": 0, "output_token_details": details}
    return _event("response.done", response={"id": response, "status": status, "usage": usage})


class Voice(NullSession):
    """A realtime session. Its responses follow one another."""

    def __init__(self, pace: Pace, packet: bytes, echo: bool, frame_s: float | None) -> None:
        """`packet`: the base64 PCM of one interval. `echo`: answer each piece of audio with `ECHO_S` of it.

        `frame_s`: answer frames of this length instead of turns.
        """
        super().__init__(pace)
        self._packet = packet
        self._echo = _audio_delta("resp_echo", packet_of(ECHO_S)) if echo else None
        self._responses = 0
        self._greetings = _greetings(frame_s)
        self._frame_bytes = None if frame_s is None else 2 * round(frame_s * RATE_IN)
        self._frame = self._received = 0

    def on_ws_connected(self, transport: picows.WSTransport) -> None:
        super().on_ws_connected(transport)
        self._send(self._greetings[0])

    def heard(self, read_s: float, data: bytes) -> None:
        if b'"input_audio_buffer.append"' in data:
            if self._echo is not None:
                self._send(self._echo)
            if self._frame_bytes is not None:
                self._hear(read_s, len(data) - _ENVELOPE, data.count(b"=", -4))
        elif b'"response.create"' in data:
            self._respond(read_s, data)
        elif b'"session.update"' in data:
            self._send(self._greetings[1])
        elif b'"input_audio_buffer.commit"' in data:
            self._send(_COMMITTED)
        elif b'"response.cancel"' in data and self._answer is not None and not self._answer.over:
            self._answer.cancel()
            self._send(self._cancelled)

    def _hear(self, read_s: float, size: int, padding: int) -> None:
        """Take base64 audio; each frame's worth is answered by one event."""
        assert self._frame_bytes is not None
        self._received += size // 4 * 3 - padding
        if self._received >= self._frame_bytes:
            self._received -= self._frame_bytes
            answer = _event("rehearsal.frame.done", frame=self._frame, tokens=1)
            self._frame += 1
            Answer(self._pace, read_s, 1, lambda _: self._send(answer))

    def _respond(self, read_s: float, request: bytes) -> None:
        self._responses += 1
        pace, response = self._pace, f"resp_{id(self)}_{self._responses}"
        packets = max(1, round(_asked_seconds(request, pace.packets * pace.interval_s) / pace.interval_s))
        delta, audio_done = (
            _audio_delta(response, self._packet),
            _event("response.output_audio.done", response_id=response),
        )
        done, self._cancelled = _done(response, "completed"), _done(response, "cancelled")

        def write(k: int) -> None:
            self._send(delta)
            if k + 1 == packets:
                self._send(audio_done)
                self._send(done)

        self._answer = Answer(pace, read_s, packets, write)
        self._send(_event("response.created", response={"id": response, "status": "in_progress"}))


def _asked_seconds(request: bytes, otherwise: float) -> float:
    """Return the seconds of audio that the hint in a `response.create` asks for."""
    metadata = (json.loads(request).get("response") or {}).get("metadata") or {}
    hint = json.loads(metadata.get("rehearsal", "{}"))
    return hint.get("reply_audio_s") or otherwise
