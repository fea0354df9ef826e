"""Settings of a session that a client may change: `session.update` read, checked and merged; and the session as clients
see it."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from engines.endpoint.protocol import Refusal
from engines.endpoint.served_fields import check_served
from engines.endpoint.turn_detection import (
    ANY_SPEECH,
    Detection,
    Interruption,
    about_detection,
    checked,
    checked_gate,
    detection_of,
)

INPUT_RATES = (24_000, 16_000)
"""Samples/s in: OpenAI's rate, and the rate of vLLM's own realtime endpoint."""

OUTPUT_RATE = 24_000
"""Samples/s out: the rate of OpenAI and of Qwen3-Omni's vocoder."""

Modality = Literal["audio", "text"]

KEPT = "Nothing of this session.update is set; the session keeps its earlier settings."


class _Own(msgspec.Struct):
    """`session.rehearsal`, as far as clients may set it."""

    interruption: Interruption | None = None


class _Format(msgspec.Struct):
    type: Literal["audio/pcm"] = "audio/pcm"
    rate: int = 24_000


class _Input(msgspec.Struct):
    format: _Format | msgspec.UnsetType = msgspec.UNSET
    turn_detection: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET


class _Output(msgspec.Struct):
    format: _Format | msgspec.UnsetType = msgspec.UNSET
    voice: str | None = None
    speed: float = 1.0


class _Audio(msgspec.Struct):
    input: _Input = msgspec.field(default_factory=_Input)
    output: _Output = msgspec.field(default_factory=_Output)


class _Update(msgspec.Struct):
    """The fields of a session.update that the server acts upon (`engines.endpoint.served_fields`)."""

    type: Literal["realtime"] = "realtime"
    model: str | None = None
    output_modalities: list[Modality] | None = None
    max_output_tokens: int | Literal["inf"] | None = None
    audio: _Audio = msgspec.field(default_factory=_Audio)
    rehearsal: _Own = msgspec.field(default_factory=_Own)


@dataclass(frozen=True)
class Settings:
    """The settings of one session. `speaks`: the server can; `input_rate`: samples/s; `vad`: None if the client ends
    its turns itself; `max_output_tokens`: of a reply's text, None: the stages' limit."""

    speaks: bool
    model: str
    modality: Modality
    input_rate: int = 24_000
    vad: Detection | None = None
    interruption: Interruption = ANY_SPEECH
    max_output_tokens: int | None = None
    voice: str | None = None

    def updated(self, session: dict[str, Any]) -> "Settings":
        """Return the settings with a client's session.update. Raises Refusal."""
        check_served(session, _Update, "session", KEPT)
        try:
            update = msgspec.convert(session, _Update)
            detection = detection_of(update.audio.input.turn_detection, KEPT)
        except (msgspec.ValidationError, RecursionError) as error:
            raise Refusal(f"session.update is refused: {error}. {KEPT}", param="session") from None
        wanted: dict[str, Any] = {}
        if update.model is not None:
            wanted["model"] = update.model
        if update.output_modalities is not None:
            wanted["modality"] = self.allowed(update.output_modalities)
        if update.max_output_tokens is not None:
            wanted["max_output_tokens"] = limit_of(update.max_output_tokens)
        audio_in, audio_out = update.audio.input, update.audio.output
        if audio_in.format is not msgspec.UNSET:
            if audio_in.format.rate not in INPUT_RATES:
                raise Refusal(
                    f"audio comes in at {audio_in.format.rate} samples/s; set 24000 or 16000.",
                    param="session.audio.input.format.rate",
                )
            wanted["input_rate"] = audio_in.format.rate
        if detection is not msgspec.UNSET:
            wanted["vad"] = checked(detection)
        if update.rehearsal.interruption is not None:
            wanted["interruption"] = checked_gate(update.rehearsal.interruption)
        if audio_out.format is not msgspec.UNSET and audio_out.format.rate != OUTPUT_RATE:
            raise Refusal(
                f"audio goes out at {OUTPUT_RATE} samples/s, not {audio_out.format.rate}.",
                param="session.audio.output.format.rate",
            )
        if audio_out.speed != 1:
            raise Refusal(
                f"speech has speed 1, not {audio_out.speed:g}; leave speed out. {KEPT}",
                param="session.audio.output.speed",
            )
        if audio_out.voice is not None:
            wanted["voice"] = audio_out.voice
        return replace(self, **wanted)

    def allowed(self, modalities: list[Modality]) -> Modality:
        """Return the one modality of replies. Raises Refusal."""
        if len(modalities) != 1:
            raise Refusal("replies have one modality; set ['audio'] or ['text'].", param="output_modalities")
        if modalities[0] == "audio" and not self.speaks:
            raise Refusal(
                "the model that is served does not speak; set output_modalities to ['text'].", param="output_modalities"
            )
        return modalities[0]

    def session_object(self, id: str, about: dict[str, Any]) -> dict[str, Any]:
        """Return the session object of session.created and session.updated; `about`: `session.rehearsal`."""
        pcm = "audio/pcm"
        return {
            "type": "realtime",
            "object": "realtime.session",
            "id": id,
            "model": self.model,
            "output_modalities": [self.modality],
            "max_output_tokens": self.max_output_tokens or "inf",
            "audio": {
                "input": {"format": {"type": pcm, "rate": self.input_rate}, "turn_detection": self.vad},
                "output": {
                    "format": {"type": pcm, "rate": OUTPUT_RATE},
                    "voice": self.voice or "synthetic",
                    "speed": 1.0,
                },
            },
            "rehearsal": {**about, "interruption": self.interruption, "turn_detection": about_detection(self.vad)},
        }


def limit_of(tokens: int | Literal["inf"]) -> int | None:
    """Return a limit on a reply's text tokens; None: none. Raises Refusal."""
    if tokens == "inf":
        return None
    if tokens < 1:
        raise Refusal(f"max_output_tokens is {tokens}; set 1 or more, or 'inf'.", param="max_output_tokens")
    return tokens
