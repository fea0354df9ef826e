"""The null server's realtime sessions: the OpenAI events over WebSocket, as far as turns need them."""

import base64
import json
from typing import Any

import picows
from picows import WSMsgType

from harness.live.null_pace import Answer, Pace

RATE = 24_000  # samples/s, what the protocol says where a session does not
ECHO_S = 0.02  # as long as the pieces that clients send [config: TargetParams.chunk_ms]


def packet_of(seconds: float) -> bytes:
    """Silence of this length, as it goes into an event."""
    return base64.b64encode(bytes(2 * round(seconds * RATE)))


def _event(kind: str, **fields: Any) -> bytes:
    return json.dumps({"type": kind, **fields}, separators=(",", ":")).encode()


def _audio_delta(response: str, base64_pcm: bytes) -> bytes:
    head = _event("response.output_audio.delta", response_id=response, item_id=f"item_{response}")
    return b'%s,"output_index":0,"content_index":0,"delta":"%s"}' % (head[:-1], base64_pcm)


_SESSION = {
    "type": "realtime",
    "id": "sess_null",
    "object": "realtime.session",
    "model": "null",
    "audio": {"output": {"format": {"type": "audio/pcm", "rate": RATE}}},
    "rehearsal": {"version": 1, "serves": "turns", "engine": "null", "device": "none"},
}
_HELLO = _event("session.created", event_id="event_hello", session=_SESSION)
_UPDATED = _event("session.updated", event_id="event_updated", session=_SESSION)
_COMMITTED = _event("input_audio_buffer.committed", event_id="event_committed", item_id="item_user")


def _done(response: str, status: str) -> bytes:
    details = {"text_tokens": 0, "audio_tokens": 0}
    usage = {"total_tokens": 0, "input_tokens": 0, "output_tokens": 0, "output_token_details": details}
    return _event("response.done", response={"id": response, "status": status, "usage": usage})


class Voice(picows.WSListener):
    """One realtime session. Its responses follow one another."""

    def __init__(self, pace: Pace, packet: bytes, echo: bool) -> None:
        """``packet``: the base64 PCM of one interval. ``echo``: answer each piece of audio with ``ECHO_S`` of it."""
        self._pace = pace
        self._packet = packet
        self._echo = _audio_delta("resp_echo", packet_of(ECHO_S)) if echo else None
        self._answer: Answer | None = None
        self._responses = 0

    def on_ws_connected(self, transport: picows.WSTransport) -> None:
        self._transport = transport
        self._send(_HELLO)

    def on_ws_disconnected(self, transport: picows.WSTransport) -> None:
        if self._answer is not None:
            self._answer.cancel()

    def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
        read_s = self._pace.loop.time()
        self._pace.truth.messages_in += 1
        data = frame.get_payload_as_bytes()
        if frame.msg_type == WSMsgType.CLOSE:
            transport.send_close(frame.get_close_code())
            transport.disconnect()
        elif b'"input_audio_buffer.append"' in data:
            if self._echo is not None:
                self._send(self._echo)
        elif b'"response.create"' in data:
            self._respond(read_s, data)
        elif b'"session.update"' in data:
            self._send(_UPDATED)
        elif b'"input_audio_buffer.commit"' in data:
            self._send(_COMMITTED)
        elif b'"response.cancel"' in data and self._answer is not None and not self._answer.over:
            self._answer.cancel()
            self._send(self._cancelled)

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

    def _send(self, message: bytes) -> None:
        self._transport.send(WSMsgType.TEXT, message)

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass


def _asked_seconds(request: bytes, otherwise: float) -> float:
    """Seconds of audio that the hint in a ``response.create`` asks for."""
    metadata = (json.loads(request).get("response") or {}).get("metadata") or {}
    hint = json.loads(metadata.get("rehearsal", "{}"))
    return hint.get("reply_audio_s") or otherwise
