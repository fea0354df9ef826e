"""Metronome: each session keeps its last W tokens and its first S, and latency decides who is let in (section 4)."""

from typing import Any

from engines.calls.library import CALLS
from engines.composition import AdmissionControl, Composition
from engines.systems.metronome.aimd import Aimd, AimdParams


def _aimd(params: Any, frame_s: float) -> Aimd:
    return Aimd(params, frame_s)


COMPONENTS = (
    AdmissionControl(
        "aimd",
        "a cap on calls from the latency of their frames, by additive increase and multiplicative decrease",
        AimdParams,
        kinds=("frames",),
        refusal="it needs the latency of frames, and turns have no beat.",
        make=_aimd,
    ),
)

SYSTEMS = (
    Composition(
        "metronome",
        "Metronome: interaction sessions with a KV window, attention sinks and admission by latency",
        CALLS,
        {"window": 1024},
    ),
)
