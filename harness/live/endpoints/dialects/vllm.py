"""vLLM's own /v1/realtime (vllm.entrypoints.speech_to_text.realtime), vLLM-Omni's turn-based one, which adds audio, and
vLLM-Omni's duplex sessions there (vllm_omni 0.30: clients/duplex.py, entrypoints/openai/realtime).

In the first two a commit starts a generation that reads the audio as it comes, and a final commit ends it. Nothing can
be cancelled: who interrupts hangs up. Of vLLM-Omni's, a transcript that ends before any audio has come ends the reply.
"""

import json
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from harness.live.endpoints.dialects.dialect import CLOSE, Cut, Dialect, encode, with_query
from harness.live.endpoints.dialects.events import Done, Event
from harness.live.endpoints.dialects.parsing import created
from workloads.trace import Turn


@dataclass(frozen=True)
class VLLM(Dialect):
    """vLLM's protocol: 16 kHz in; text out, with vLLM-Omni also audio."""

    name: ClassVar[str] = "vllm"
    input_rate: ClassVar[int] = 16_000
    ready_on: ClassVar[str] = "session.created"
    answers_hello: ClassVar[bool] = False
    needs_model: ClassVar[bool] = True

    @classmethod
    def greets(cls, first: bytes) -> bool:
        hello = created(first)
        return hello is not None and hello.session is None

    def hello(self) -> list[bytes]:
        return [encode("session.update", model=self.target.model)]

    def begin_of_turn(self) -> list[bytes]:
        return [encode("input_audio_buffer.commit", final=False)]

    def end_of_turn(self, turn: Turn) -> list[bytes]:
        return [encode("input_audio_buffer.commit", final=True)]

    def interrupt(self, cut: Cut) -> list[bytes] | Literal["close"]:
        return CLOSE

    def missing(self, begun: bool, spoke: bool) -> str:
        return "transcription.done" if spoke else "transcription.delta"


@dataclass(frozen=True)
class VLLMOmni(Dialect):
    """vLLM-Omni's protocol: 16 kHz in. The server says hello after the client, and gets reports of playback."""

    name: ClassVar[str] = "vllm_omni"
    input_rate: ClassVar[int] = 16_000
    ready_on: ClassVar[str] = "session.created"
    answers_hello: ClassVar[bool] = False
    turn_detection: ClassVar[tuple[str, ...]] = ("client", "server")
    waits: ClassVar[bool] = True
    mark: ClassVar[str | None] = "playback_commit_policy"

    def url(self) -> str:
        return with_query(self.target.url, duplex="1", model=self.target.model, autostart="0")

    def hello(self) -> list[bytes]:
        session: dict[str, Any] = {
            "modalities": ["audio", "text"] if self.target.modalities == "audio" else ["text"],
            "input_audio_format": "pcm16",
            "output_audio_format": "pcm16",
            "turn_detection": self.vad() if self.server_vad else None,
        }
        for name, value in (("model", self.target.model), ("voice", self.target.voice)):
            if value is not None:
                session[name] = value
        return [encode("session.update", session=session)]

    def vad(self) -> dict[str, Any]:
        return super().vad() | {"type": "server_vad"}

    def append(self, pcm: bytes) -> bytes:
        """Return the messages of audio with its rate, since its server accepts several."""
        return super().append(pcm)[:-1] + b',"format":"pcm16","sample_rate_hz":%d}' % self.input_rate

    def end_of_turn(self, turn: Turn) -> list[bytes]:
        if self.server_vad:
            return []
        # The server has no field for lengths; its modelled stages read them where a client's own words stand.
        hint = {"event_id": json.dumps(self.lengths(turn))} if self.target.hint else {}
        return [encode("input_audio_buffer.commit", final=True, create_response=True, **hint)]

    def typed_turn(self, turn: Turn, text: str) -> list[bytes]:
        content = [{"type": "input_text", "text": text}]
        item = {"type": "message", "role": "user", "content": content}
        return [encode("conversation.item.create", item=item), encode("response.create")]

    def cancel(self, cut: Cut) -> list[bytes]:
        return cut.cancelled()

    def interrupt(self, cut: Cut) -> list[bytes] | Literal["close"]:
        # Before the first audio the reply has no item, and a report of it is an error.
        messages = self.ack(cut, playing=False) if cut.played_s else []
        if self.server_vad:
            return messages
        # Of a complete reply nothing can be cancelled, but as long as it plays the server takes speech for a remark
        # over it, and answers nothing (vllm_omni 0.30.0, engine/duplex/session/helpers.py 110).
        return [*messages, *([encode("output_audio_buffer.clear")] if cut.done else self.cancel(cut))]

    def ack(self, played: Cut, playing: bool) -> list[bytes]:
        if played.response is None:
            return []
        names = played.response, played.item or f"item_{played.response}"
        response, item = (json.dumps(name).encode() for name in names)
        ms = round(1e3 * played.played_s)  # one short of the whole, and it would be playing for ever
        return [
            b'{"type":"playback.ack","response_id":%s,"item_id":%s,"played_ms":%d,"committed_ms":%d}'
            % (response, item, ms, ms)
        ]

    def answer(self, event: Event) -> list[bytes]:
        if not isinstance(event, Done) or event.number is None:
            return []
        return [encode("session.event_ack", server_event_seq=event.number)]
