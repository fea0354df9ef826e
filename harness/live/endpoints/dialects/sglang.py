"""SGLang-Omni's negotiated sessions on /v1/realtime, native full duplex among them (sglang_omni 0.1.9:
serve/realtime/schema.py, protocol.py, projection.py, control.py).

Every message has an event_id, pieces of audio are numbered without a gap, fields that are not known are errors, and
the server answers with what it grants. A native session listens and speaks by itself, unit by unit of audio; one that
takes turns has a VAD of its own, or takes commits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar, Literal

from harness.live.endpoints.dialects.dialect import APPEND, UNDO, Cut, Dialect, encode
from workloads.trace import Turn

_EVENT = "rehearsal"
_NUMBER = b'"sglang":{"seq":0}}'
"""Ends a piece of audio before it is numbered."""


@dataclass(frozen=True)
class SGLangDuplex(Dialect):
    """SGLang's open microphone: 16 kHz in, as its models need; the rate of the answer is negotiated."""

    name: ClassVar[str] = "sglang_duplex"
    input_rate: ClassVar[int] = 16_000
    ready_on: ClassVar[str] = "session.updated"
    turn_detection: ClassVar[tuple[str, ...]] = ("client", "server", "semantic")
    fixed: ClassVar[tuple[str, ...]] = ("voice",)
    speech_stops: ClassVar[bool] = False
    """A native model decides itself whether speech stops it."""
    mark: ClassVar[str | None] = "sglang"

    def hello(self) -> list[bytes]:
        target = self.target
        audio_in: dict[str, Any] = {"format": {"type": "audio/pcm", "rate": self.input_rate}}
        if target.silence_duration_ms is not None or target.turn_detection == "semantic":
            audio_in["turn_detection"] = self.vad()
        session: dict[str, Any] = {
            "type": "realtime",
            "output_modalities": [target.modalities],
            "audio": {"input": audio_in},
        }
        if target.model is not None:
            session["model"] = target.model
        return [encode("session.update", event_id=_EVENT, session=session)]

    def append(self, pcm: bytes) -> bytes:
        return super().append(pcm)[:-1] + b',"event_id":"%s",%s' % (_EVENT.encode(), _NUMBER)

    def writer(self) -> Callable[[bytes], bytes]:
        numbers = count()

        def write(message: bytes) -> bytes:
            return message[:-3] + b"%d}}" % next(numbers) if message.startswith(APPEND) else message

        return write

    def end_of_turn(self, turn: Turn) -> list[bytes]:
        return [] if self.server_vad else [encode("input_audio_buffer.commit", event_id=_EVENT)]

    def cancel(self, cut: Cut) -> list[bytes]:
        return [] if cut.done else [encode("response.cancel", event_id=f"{UNDO}-cancel")]

    def interrupt(self, cut: Cut) -> list[bytes] | Literal["close"]:
        """Cancel, which not every server grants; an error about it is ignored."""
        messages = [] if self.server_vad else self.cancel(cut)
        return messages + cut.truncated(event_id=f"{UNDO}-truncate")


@dataclass(frozen=True)
class SGLangOmni(Dialect):
    """Turn-based sessions on the same path (sglang_omni 0.1.9: serve/realtime/events.py, session.py).

    It uses OpenAI's events by their beta names over a flat session. The server's VAD ends a turn and cuts a reply;
    neither end of a turn has a message, and an unknown type ends the connection. 16 kHz in, 24 kHz out.
    """

    name: ClassVar[str] = "sglang_omni"
    input_rate: ClassVar[int] = 16_000
    ready_on: ClassVar[str] = "session.updated"
    turn_detection: ClassVar[tuple[str, ...]] = ("server", "semantic")
    confirms: ClassVar[bool] = False
    mark: ClassVar[str | None] = "capabilities"

    def hello(self) -> list[bytes]:
        speaks = self.target.modalities == "audio"
        session = {
            "modalities": ["text", "audio"] if speaks else ["text"],
            "input_audio_format": "pcm16",
            "output_audio_format": "pcm16",
            "turn_detection": self.vad(),
        }
        return [encode("session.update", session=session)]

    def cancel(self, cut: Cut) -> list[bytes]:
        return cut.cancelled()

    def interrupt(self, cut: Cut) -> list[bytes] | Literal["close"]:
        """Return no message: its VAD cuts the reply, and the unheard part leaves the conversation."""
        return cut.truncated()
