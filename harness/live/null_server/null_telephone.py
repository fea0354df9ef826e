"""The null server's telephone agent: Twilio's Media Streams as far as turns need them.

A turn ends where the first silent frame after speech begins, and its answer is timed from there. Speech over an answer
clears it. No packet has less than a frame.
"""

import json
from base64 import b64encode

from harness.live.endpoints.dialects.audio_format import TELEPHONE_RATE, as_ulaw
from harness.live.null_server.null_session import NullSession
from harness.live.null_server.null_voice import tone
from harness.live.null_server.pace import Answer, Pace

FRAME_S = 0.02  # [config: Twilio Media Streams]
_SILENT = as_ulaw(bytes(2 * round(FRAME_S * TELEPHONE_RATE)))


def _media(stream: str, ulaw: bytes) -> bytes:
    media = {"payload": b64encode(ulaw).decode()}
    return json.dumps({"event": "media", "streamSid": stream, "media": media}).encode()


class Telephone(NullSession):
    """A call. `echo`: each frame is answered by a silent one."""

    def __init__(self, pace: Pace, echo: bool) -> None:
        super().__init__(pace)
        self._echoes = echo
        self._silent = b'"%s"' % b64encode(_SILENT)
        self._speaks = False

    def heard(self, read_s: float, data: bytes) -> None:
        if data.startswith(b'{"event":"media"'):
            self._hear(read_s, speech=self._silent not in data)
        elif b'"start"' in data:
            stream = json.loads(data)["streamSid"]
            self._packet = _media(stream, as_ulaw(tone(self._pace.interval_s, TELEPHONE_RATE)))
            self._echo = _media(stream, _SILENT)
            self._clear = json.dumps({"event": "clear", "streamSid": stream}).encode()

    def _hear(self, read_s: float, speech: bool) -> None:
        if self._echoes:
            self._send(self._echo)
        if speech and not self._speaks and self._answer is not None and not self._answer.over:
            self._answer.cancel()
            self._send(self._clear)
        if self._speaks and not speech:
            end_s, packets = read_s - FRAME_S, self._pace.packets
            self._answer = Answer(self._pace, end_s, packets, lambda _: self._send(self._packet))
        self._speaks = speech
