"""OpenAI's Realtime API over WebSocket (GA names; openai.types.realtime of the official client), and our
own server's protocol: the same with playback reports, lengths of replies and interaction sessions.
"""

import json
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.live.endpoints.dialects.dialect import UNDO, Cut, Dialect, encode, with_query
from harness.live.endpoints.target import is_openai
from workloads.trace import Turn


@dataclass(frozen=True)
class OpenAI(Dialect):
    """OpenAI's protocol: audio of 24 kHz in both directions. Interruptions cancel the response and truncate its
    item."""

    name: ClassVar[str] = "openai"
    input_rate: ClassVar[int] = 24_000
    ready_on: ClassVar[str] = "session.updated"
    turn_detection: ClassVar[tuple[str, ...]] = ("client", "server", "semantic")
    confirms: ClassVar[bool] = False
    mark: ClassVar[str | None] = ""
    understands: ClassVar[tuple[str, ...]] = ("rehearsal", "vllm_omni", "openai_webrtc")

    @classmethod
    def at(cls, url: str) -> bool:
        return is_openai(url)

    def url(self) -> str:
        return with_query(self.target.url, model=self.target.model)

    @property
    def hints(self) -> bool:
        """True where requests state a reply's length, which only a server of ours understands."""
        return self.target.hint

    def hello(self) -> list[bytes]:
        target = self.target
        vad = {"create_response": True, "interrupt_response": True, **self.vad()}
        output: dict[str, Any] = {"format": {"type": "audio/pcm", "rate": 24_000}}
        if self.target.voice is not None:
            output["voice"] = self.target.voice
        audio_in = {
            "format": {"type": "audio/pcm", "rate": self.input_rate},
            "turn_detection": vad if self.server_vad else None,
        }
        session: dict[str, Any] = {
            "type": "realtime",
            "output_modalities": [self.target.modalities],
            "audio": {"input": audio_in, "output": output},
        }
        if target.min_duration_s or target.min_words:
            gate = {"min_duration_ms": round(1e3 * (target.min_duration_s or 0)), "min_words": target.min_words or 0}
            session["rehearsal"] = {"interruption": gate}
        return [encode("session.update", session=session)]

    def end_of_turn(self, turn: Turn) -> list[bytes]:
        return [] if self.server_vad else [encode("input_audio_buffer.commit"), self._respond(turn)]

    def typed_turn(self, turn: Turn, text: str) -> list[bytes]:
        content = [{"type": "input_text", "text": text}]
        item = {"type": "message", "role": "user", "content": content}
        return [encode("conversation.item.create", item=item), self._respond(turn)]

    def cancel(self, cut: Cut) -> list[bytes]:
        return cut.cancelled()

    def interrupt(self, cut: Cut) -> list[bytes] | Literal["close"]:
        messages = [] if self.server_vad else self.cancel(cut)
        return messages + cut.truncated(event_id=f"{UNDO}-truncate")

    def silence(self, turn: Turn, ends_turn: bool, left: float = 1.0) -> list[bytes]:
        if not self.hints:
            return []
        return [encode("rehearsal.silence", ends_turn=ends_turn, reply=self.lengths(turn, left))]

    def _respond(self, turn: Turn) -> bytes:
        if not self.hints:
            return encode("response.create")
        hint = {**self.lengths(turn), "input_tokens": turn.input_tokens}
        return encode("response.create", response={"metadata": {"rehearsal": json.dumps(hint)}})


@dataclass(frozen=True)
class Rehearsal(OpenAI):
    """Our server's protocol: 16 kHz in, the rate of its VAD and its models. Requests always state the reply's
    length."""

    name: ClassVar[str] = "rehearsal"
    input_rate: ClassVar[int] = 16_000
    reports_played: ClassVar[bool] = True
    confirms: ClassVar[bool] = True
    speech_stops: ClassVar[bool] = False
    gates: ClassVar[bool] = True
    takes_frames: ClassVar[bool] = True
    mark: ClassVar[str | None] = "rehearsal"
    understands: ClassVar[tuple[str, ...]] = ("openai",)

    @classmethod
    def at(cls, url: str) -> bool:
        return False

    @property
    def hints(self) -> bool:
        return True

    def cancel(self, cut: Cut) -> list[bytes]:
        """Cancel a reply, also one that is complete and still plays."""
        return super().cancel(cut._replace(done=False))

    def interrupt(self, cut: Cut) -> list[bytes] | Literal["close"]:
        """Return the exact position, which decides the cut, and then the cut."""
        messages = self.ack(cut._replace(done=False), playing=False)
        return messages if self.server_vad else [*messages, *self.cancel(cut)]

    def ack(self, played: Cut, playing: bool) -> list[bytes]:
        if played.response is None:
            return []
        return [
            b'{"type":"rehearsal.playback","response_id":%s,"played_ms":%.3f,"playing":%s,"done":%s}'
            % (
                json.dumps(played.response).encode(),
                1e3 * played.played_s,
                b"true" if playing else b"false",
                b"true" if played.done else b"false",
            )
        ]

    def frame(self, turn: Turn) -> list[bytes]:
        hint: dict[str, int] = {"frame": turn.turn, "output_tokens": turn.output_tokens}
        if turn.content is not None:
            hint["content"] = turn.content
        return [encode("rehearsal.frame", **hint)]
