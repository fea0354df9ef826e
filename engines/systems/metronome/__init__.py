"""Metronome: each session keeps its last W tokens and its first S, and latency decides on admission (section 4)."""

from engines.composition import AdmissionControl, Composition
from engines.frames.library import CALLS
from engines.systems.metronome.metronome_params import AimdParams, CapParams
from workloads.deferred import Deferred

COMPONENTS = (
    AdmissionControl(
        "aimd",
        "a cap on calls from the latency of their frames, by additive increase and multiplicative decrease",
        AimdParams,
        kinds=("frames",),
        refusal="it needs the latency of frames, and turns have no beat.",
        reads=CapParams,
        make=Deferred("engines.systems.metronome.aimd:Aimd"),
    ),
)

SYSTEMS = (
    Composition(
        "metronome",
        "Metronome: interaction sessions with a KV window, attention sinks and admission by latency",
        CALLS,
        {"window": 1024},
        against=("vllm_realtime", "vllm_realtime_pr49439", "recycling"),
    ),
)
