"""SGLang-Omni's turn-based sessions on /v1/realtime (sglang_omni 0.1.9: serve/realtime/events.py, session.py).

OpenAI's events by their beta names over a flat session. The server's VAD ends a turn and cuts a reply; there is no
message for either end of a turn, and one of a type that it does not know ends the connection.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.live.dialects.dialect import Cut, Dialect, encode
from harness.live.dialects.events import Event, Failure, Other
from workloads.trace import Turn

_NO_ITEM = "item_not_found"
"""A reply is truncated that left nothing in the conversation; the error does not say which message it is about."""


@dataclass(frozen=True)
class SGLangOmni(Dialect):
    """16 kHz in, 24 kHz out."""

    name: ClassVar[str] = "sglang_omni"
    input_rate: ClassVar[int] = 16_000
    ready_on: ClassVar[str] = "session.updated"
    hears: ClassVar[bool] = True

    def cannot(self, typed: bool) -> str | None:
        if self.target.turn_detection == "client":
            return "its servers find the ends of turns themselves; take turn_detection=server or semantic"
        if typed:
            return "its server takes no typed turns; take a workload whose turns are spoken"
        return super().cannot(typed)

    def hello(self) -> list[bytes]:
        target = self.target
        vad: dict[str, Any] = {"type": "server_vad"}
        if target.turn_detection == "semantic":
            vad = {"type": "semantic_vad", "eagerness": target.eagerness or "auto"}
        elif target.silence_duration_ms is not None:
            vad["silence_duration_ms"] = target.silence_duration_ms
        speaks = target.modalities == "audio"
        session = {
            "modalities": ["text", "audio"] if speaks else ["text"],
            "input_audio_format": "pcm16",
            "output_audio_format": "pcm16",
            "turn_detection": vad,
        }
        return [encode("session.update", session=session)]

    def end_of_turn(self, turn: Turn) -> list[bytes]:
        return []

    def interrupt(self, cut: Cut) -> list[bytes] | Literal["close"]:
        """Its VAD cuts the reply; what was not heard of it leaves the conversation."""
        if cut.item is None:
            return []
        ms = int(1e3 * cut.played_s)
        return [encode("conversation.item.truncate", item_id=cut.item, content_index=0, audio_end_ms=ms)]

    def classify(self, data: bytes) -> Event:
        event = super().classify(data)
        return Other() if isinstance(event, Failure) and event.code == _NO_ITEM else event
