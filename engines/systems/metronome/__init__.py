"""Metronome: each session keeps its last W tokens and its first S, and latency decides who is let in (section 4)."""

from pydantic import BaseModel, Field

from engines.calls.params import SessionParams
from engines.core.admission import Admission

SUMMARY = "Metronome: interaction sessions with a KV window, attention sinks and admission by latency"


class Params(SessionParams):
    """Beside those of every engine for sessions, what bounds each session's KV."""

    window: int = Field(
        1024, ge=1, description="latest tokens that a session keeps and attends to: W [paper]"
    )
    sinks: int = Field(
        0,
        ge=0,
        description="first tokens that it keeps as well: S; 16 or 32 in the paper's free-running probe, not read in "
        "its serving figures",
    )


def bound(params: BaseModel) -> tuple[int, int]:
    """Window and sinks, tokens."""
    assert isinstance(params, Params)
    return params.window, params.sinks


def admission(params: BaseModel, frame_s: float) -> Admission | None:
    """The controller of section 4.2 for frames of `frame_s` s, for whichever engine; None where it is off."""
    assert isinstance(params, SessionParams)
    if params.admission == "off":
        return None
    from engines.systems.metronome.aimd import Aimd

    return Aimd(params, frame_s)
