"""vLLM's own /v1/realtime (vllm.entrypoints.speech_to_text.realtime), and vLLM-Omni's turn-based one, which adds audio.

A commit starts a generation that reads the audio as it comes, and a final commit ends it. Nothing can be cancelled: who
interrupts hangs up. Of vLLM-Omni, a transcript that ends before any audio has come ends the reply.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from harness.live.dialects.dialect import CLOSE, Cut, Dialect, encode
from workloads.trace import Turn


@dataclass(frozen=True)
class VLLM(Dialect):
    """16 kHz in; text out, with vLLM-Omni also audio."""

    name: ClassVar[str] = "vllm"
    input_rate: ClassVar[int] = 16_000
    ready_on: ClassVar[str] = "session.created"
    answers_hello: ClassVar[bool] = False

    def cannot(self, typed: bool) -> str | None:
        if self.target.turn_detection != "client":
            return "its server does not listen for the end of a turn; take turn_detection=client"
        if self.target.model is None:
            return "its server wants to be asked for a model; set model"
        if typed:
            return "its server takes no typed turns; take a workload whose turns are spoken"
        return super().cannot(typed)

    def hello(self) -> list[bytes]:
        return [encode("session.update", model=self.target.model)]

    def begin_of_turn(self) -> list[bytes]:
        return [encode("input_audio_buffer.commit", final=False)]

    def end_of_turn(self, turn: Turn) -> list[bytes]:
        return [encode("input_audio_buffer.commit", final=True)]

    def interrupt(self, cut: Cut) -> list[bytes] | Literal["close"]:
        return CLOSE
