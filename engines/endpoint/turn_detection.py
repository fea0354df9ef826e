"""A server's detection of ends of turns and of interruptions, as clients set it."""

from typing import Any, Literal

import msgspec

from engines.endpoint.protocol import Refusal
from engines.endpoint.served_fields import check_served
from engines.turn_taking.endpointing import ACCURACY, ASK_S, INFERENCE_S

WHERE = "session.audio.input.turn_detection"


class ServerVad(msgspec.Struct, frozen=True):
    """Turns that the server ends by itself; fields and defaults as OpenAI's."""

    type: Literal["server_vad"] = "server_vad"
    threshold: float = 0.5
    prefix_padding_ms: int = 300
    silence_duration_ms: int = 500
    create_response: bool = True
    interrupt_response: bool = True


class SemanticVad(msgspec.Struct, frozen=True):
    """Turns that the server ends when the words sound finished; fields and defaults as OpenAI's. The detector is
    simulated (`engines.turn_taking.endpointing.SimulatedSemantic`), and the session object says so."""

    type: Literal["semantic_vad"] = "semantic_vad"
    eagerness: Literal["low", "medium", "high", "auto"] = "auto"
    create_response: bool = True
    interrupt_response: bool = True

    @property
    def threshold(self) -> float:
        """The threshold of the VAD in front, which is no setting of OpenAI's."""
        return ServerVad().threshold

    @property
    def prefix_padding_ms(self) -> int:
        return ServerVad().prefix_padding_ms


Detection = ServerVad | SemanticVad


class Interruption(msgspec.Struct, frozen=True):
    """`session.rehearsal.interruption`: the speech that interrupts a reply; by default any does."""

    min_duration_ms: int = 0
    min_words: int = 0


ANY_SPEECH = Interruption()


def detection_of(
    settings: dict[str, Any] | msgspec.UnsetType | None, kept: str
) -> Detection | msgspec.UnsetType | None:
    """Return the turn detection that a session.update sets. `kept`: the setting that stays if the update is rejected.
    Raises msgspec.ValidationError and Refusal."""
    if not isinstance(settings, dict):
        return settings
    kind = SemanticVad if settings.get("type") == "semantic_vad" else ServerVad
    check_served(settings, kind, WHERE, kept, top=False)
    return msgspec.convert({name: value for name, value in settings.items() if value is not None}, kind)


def about_detection(vad: Detection | None) -> dict[str, Any] | None:
    """Return `session.rehearsal.turn_detection`: the facts about a simulated detector."""
    if not isinstance(vad, SemanticVad):
        return None
    rates = ACCURACY["smart_turn_v3"]
    return {
        "simulated": "rehearsal.silence gives it the truth; it takes any other silence for an end, and errs at rates "
        "published for Smart Turn v3",
        "true_positive_rate": round(rates.true_positive, 4),
        "false_positive_rate": round(rates.false_positive, 4),
        "asked_after_ms": round(1000 * ASK_S),
        "inference_ms": round(1000 * INFERENCE_S),
    }


def checked(vad: Detection | None) -> Detection | None:
    """Check the values. Raises Refusal for one that makes no sense."""
    if not isinstance(vad, ServerVad):
        return vad
    if not 0 <= vad.threshold <= 1:
        raise Refusal(f"threshold is {vad.threshold}; set 0 to 1.", param=f"{WHERE}.threshold")
    for name, most in (("prefix_padding_ms", 2_000), ("silence_duration_ms", 10_000)):
        if not 0 <= getattr(vad, name) <= most:
            raise Refusal(f"{name} is {getattr(vad, name)}; set 0 to {most}.", param=f"{WHERE}.{name}")
    return vad


def checked_gate(gate: Interruption) -> Interruption:
    """Check the values. Raises Refusal for one that makes no sense."""
    for name, most in (("min_duration_ms", 10_000), ("min_words", 100)):
        if not 0 <= getattr(gate, name) <= most:
            where = f"session.rehearsal.interruption.{name}"
            raise Refusal(f"{name} is {getattr(gate, name)}; set 0 to {most}.", param=where)
    return gate
