"""The workloads by name, with their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from workloads.audio.workload import SpeechParams, speech_sessions
from workloads.azure import azure
from workloads.batch import NovelParams, OfflineParams, novel, offline
from workloads.burstgpt import burstgpt
from workloads.burstgpt_fit import BurstGptFitParams, burstgpt_fit
from workloads.calls import CallParams, calls
from workloads.co_serving import CoServingParams, co_serving
from workloads.errors import UserError, nearest, validate
from workloads.gui import GuiParams, gui
from workloads.interactive import InteractiveParams, interactive
from workloads.mooncake import MooncakeParams, mooncake
from workloads.omni_mix import OmniMixParams, omni_mix
from workloads.open_loop import (
    GammaParams,
    PoissonParams,
    RampParams,
    WeibullParams,
    constant,
    gamma,
    poisson,
    ramp,
    weibull,
)
from workloads.questions import QuestionParams, questions
from workloads.ragpulse import ragpulse
from workloads.replay import ReplayParams
from workloads.revisit import RevisitParams, revisit
from workloads.servegen import ServeGenParams, servegen
from workloads.sessions import sessions
from workloads.sharegpt import ShareGptParams, sharegpt
from workloads.streamingbench import StreamingBenchParams, streamingbench
from workloads.trace import Trace
from workloads.trace_file import FileParams, trace_file
from workloads.voice import VoiceParams, voice
from workloads.workload import Kind, Workload

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
        Workload("weibull", "as gamma, with Weibull gaps", WeibullParams, weibull),
        Workload("constant", "as poisson, but every gap is 1/rate", PoissonParams, constant),
        Workload("ramp", "as poisson, but the rate rises or falls, on a line or in steps", RampParams, ramp),
        Workload(
            "burstgpt_fit",
            "single requests with BurstGPT's bursts and lengths, without its file",
            BurstGptFitParams,
            burstgpt_fit,
        ),
        Workload(
            "sharegpt",
            "short or long exchanges of ShareGPT, from a file of it or of other chats, or fitted",
            ShareGptParams,
            sharegpt,
        ),
        Workload(
            "servegen",
            "many clients with their own rates and bursts, from ServeGen's files or fitted",
            ServeGenParams,
            servegen,
        ),
        Workload("burstgpt", "replay of a BurstGPT CSV (path=FILE), 6 or 8 columns", ReplayParams, burstgpt),
        Workload(
            "sessions",
            "replay of a session CSV (path=FILE): session_id, t, query, output",
            ReplayParams,
            sessions,
        ),
        Workload("azure", "replay of an Azure LLM inference trace (path=FILE)", ReplayParams, azure),
        Workload(
            "mooncake",
            "replay of a Mooncake trace (path=FILE): its clock's 3 s steps undone, its conversations found",
            MooncakeParams,
            mooncake,
        ),
        Workload("ragpulse", "replay of RAGPulse's JSON lines (path=FILE)", ReplayParams, ragpulse),
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
            "as voice, with what is recorded in a folder (path=DIR) or synthetic speech, as it is or degraded",
            SpeechParams,
            speech_sessions,
        ),
        Workload(
            "interactive",
            "long dialogues; a longer answer takes longer to come back to",
            InteractiveParams,
            interactive,
        ),
        Workload(
            "revisit",
            "long contexts that overfill the KV pool, each spoken to again in the order in which they came",
            RevisitParams,
            revisit,
        ),
        Workload(
            "streamingbench",
            "viewers who ask about a video at StreamingBench's times",
            StreamingBenchParams,
            streamingbench,
        ),
        Workload("omni_mix", "voice sessions and viewers of videos by a ratio", OmniMixParams, omni_mix),
        Workload(
            "metronome",
            "calls of continuous audio, offered at so many per second and answered in every frame",
            CallParams,
            calls,
            serves="frames",
        ),
        Workload(
            "questions",
            "calls of spoken questions from a folder (questions=DIR), whose answers are looked for in what is said",
            QuestionParams,
            questions,
            serves="frames",
        ),
        Workload("gui", "phone agents: a screenshot in, an action out (AndroidLab, Nova)", GuiParams, gui),
        Workload(
            "offline",
            "long documents, all at once: ConServe's DuReader, MultiNews, VCSUM",
            OfflineParams,
            offline,
        ),
        Workload("novel", "long-tailed inputs and outputs of OmniInfer, all at once", NovelParams, novel),
        Workload(
            "co_serving",
            "people with deadlines and documents without, in two classes: an online and a batch one",
            CoServingParams,
            co_serving,
        ),
    )
}


GROUP = "rehearsal.workloads"
"""Entry points of packages with workloads of their own: each names a `Workload`."""

for _entry in entry_points(group=GROUP):
    _workload = _entry.load()
    if WORKLOADS.setdefault(_workload.name, _workload) is not _workload:
        raise ValueError(f"two workloads are called {_workload.name}")


def make_trace(name: str, params: Mapping[str, Any], seed: int) -> Trace:
    """The trace of workload `name`; UserError for an unknown name, a bad parameter or bad input data."""
    if name not in WORKLOADS:
        raise UserError(f"unknown workload {name!r}.{nearest(name, WORKLOADS)}")
    workload = WORKLOADS[name]
    return workload.generate(validate(workload.Params, params, f"workload {name}"), seed)


def serves(trace: Trace) -> Kind:
    """What an engine must serve to play `trace`: as the workloads that made it, from a file or at once.

    Of a merged trace, which several made, the kind that is not turns, if there is one.
    """
    made_by = (WORKLOADS.get(name) for name in trace.header.generator.split("+"))
    return next((workload.serves for workload in made_by if workload and workload.serves != "turns"), "turns")
