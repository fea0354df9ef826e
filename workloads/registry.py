"""The workloads by name, with their parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from workloads.audio.workload import SpeechParams, speech_sessions
from workloads.burstgpt import burstgpt
from workloads.errors import UserError, nearest, validate
from workloads.open_loop import GammaParams, PoissonParams, gamma, poisson
from workloads.replay import ReplayParams
from workloads.sessions import sessions
from workloads.trace import Trace
from workloads.trace_file import FileParams, trace_file
from workloads.voice import VoiceParams, voice


@dataclass(frozen=True)
class Workload:
    """A named way to make traces: `generate(Params(...), seed)`."""

    name: str
    summary: str
    Params: type[BaseModel]
    generate: Callable[[Any, int], Trace]


WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload(
            "poisson",
            "independent single requests, Poisson arrivals, ShareGPT-like lengths",
            PoissonParams,
            poisson,
        ),
        Workload("gamma", "as poisson, but arrivals in bursts: Gamma gaps of a given CV", GammaParams, gamma),
        Workload("burstgpt", "replay of a BurstGPT CSV (path=FILE), 6 or 8 columns", ReplayParams, burstgpt),
        Workload(
            "sessions",
            "replay of a session CSV (path=FILE): session_id, t, query, output",
            ReplayParams,
            sessions,
        ),
        Workload(
            "file",
            "a trace file as it stands (path=FILE): made, converted or recorded",
            FileParams,
            trace_file,
        ),
        Workload(
            "voice",
            "spoken dialogues of one or more turns, interrupted with probability p",
            VoiceParams,
            voice,
        ),
        Workload(
            "speech",
            "as voice, but the users say what is recorded in a folder (path=DIR), or synthetic speech",
            SpeechParams,
            speech_sessions,
        ),
    )
}


def make_trace(name: str, params: Mapping[str, Any], seed: int) -> Trace:
    """The trace of workload `name`; UserError for an unknown name, a bad parameter or bad input data."""
    if name not in WORKLOADS:
        raise UserError(f"unknown workload {name!r}.{nearest(name, WORKLOADS)}")
    workload = WORKLOADS[name]
    return workload.generate(validate(workload.Params, params, f"workload {name}"), seed)
