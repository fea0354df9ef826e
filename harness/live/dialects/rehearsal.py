"""Our own server's protocol: OpenAI's, with playback reports, lengths of replies and interaction sessions."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from harness.live.dialects.dialect import Cut, encode
from harness.live.dialects.openai import OpenAI
from workloads.trace import Turn


@dataclass(frozen=True)
class Rehearsal(OpenAI):
    """16 kHz in, which is what its VAD and its models take. It is always told how long a reply is to be."""

    name: ClassVar[str] = "rehearsal"
    input_rate: ClassVar[int] = 16_000
    reports_played: ClassVar[bool] = True
    speech_stops: ClassVar[bool] = False
    gates: ClassVar[bool] = True
    takes_frames: ClassVar[bool] = True

    @property
    def hints(self) -> bool:
        return True

    def cancel(self, cut: Cut) -> list[bytes]:
        """Also of a reply that is complete and still plays."""
        return super().cancel(cut._replace(done=False))

    def interrupt(self, cut: Cut) -> list[bytes] | Literal["close"]:
        """The exact position, by which the cut is judged, and then the cut."""
        messages = self.ack(cut._replace(done=False), playing=False)
        return messages if self.server_vad else [*messages, *self.cancel(cut)]

    def ack(self, played: Cut, playing: bool) -> list[bytes]:
        if played.response is None:
            return []
        return [
            b'{"type":"rehearsal.playback","response_id":"%s","played_ms":%.3f,"playing":%s,"done":%s}'
            % (
                played.response.encode(),
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
