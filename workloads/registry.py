"""The workloads by name, with their parameters. What makes their traces is imported when one is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workloads.bounds import MOST_SEED
from workloads.deferred import Deferred
from workloads.errors import UserError, unknown, validate
from workloads.plugins import entry_points, load
from workloads.workload import Kind, Workload

if TYPE_CHECKING:
    from workloads.trace import Trace

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload(
            "poisson",
            "independent single requests, Poisson arrivals, ShareGPT-like lengths",
            Deferred("workloads.generators.open_loop:PoissonParams"),
            Deferred("workloads.generators.open_loop:poisson"),
        ),
        Workload(
            "gamma",
            "as poisson, but arrivals in bursts: Gamma gaps of a given CV",
            Deferred("workloads.generators.open_loop:GammaParams"),
            Deferred("workloads.generators.open_loop:gamma"),
        ),
        Workload(
            "weibull",
            "as gamma, with Weibull gaps",
            Deferred("workloads.generators.open_loop:WeibullParams"),
            Deferred("workloads.generators.open_loop:weibull"),
        ),
        Workload(
            "constant",
            "as poisson, but every gap is 1/rate",
            Deferred("workloads.generators.open_loop:PoissonParams"),
            Deferred("workloads.generators.open_loop:constant"),
        ),
        Workload(
            "ramp",
            "as poisson, but the rate rises or falls, on a line or in steps",
            Deferred("workloads.generators.open_loop:RampParams"),
            Deferred("workloads.generators.open_loop:ramp"),
        ),
        Workload(
            "burstgpt_fit",
            "single requests with BurstGPT's bursts and lengths, without its file",
            Deferred("workloads.generators.burstgpt_fit:BurstGptFitParams"),
            Deferred("workloads.generators.burstgpt_fit:burstgpt_fit"),
        ),
        Workload(
            "sharegpt",
            "short or long exchanges of ShareGPT, from a file of it or of other chats, or fitted",
            Deferred("workloads.generators.open_loop:ShareGptParams"),
            Deferred("workloads.generators.open_loop:sharegpt"),
        ),
        Workload(
            "servegen",
            "many clients with their own rates and bursts, from ServeGen's files or fitted",
            Deferred("workloads.generators.servegen:ServeGenParams"),
            Deferred("workloads.generators.servegen:servegen"),
        ),
        Workload(
            "burstgpt",
            "replay of a BurstGPT CSV (path=FILE), 6 or 8 columns",
            Deferred("workloads.replays.replay:ReplayParams"),
            Deferred("workloads.replays.csv_logs:burstgpt"),
        ),
        Workload(
            "sessions",
            "replay of a session CSV (path=FILE): session_id, t, query, output",
            Deferred("workloads.replays.replay:ReplayParams"),
            Deferred("workloads.replays.csv_logs:sessions"),
        ),
        Workload(
            "azure",
            "replay of an Azure LLM inference trace (path=FILE)",
            Deferred("workloads.replays.replay:ReplayParams"),
            Deferred("workloads.replays.csv_logs:azure"),
        ),
        Workload(
            "mooncake",
            "replay of a Mooncake trace (path=FILE): its clock's 3 s steps undone, its conversations found",
            Deferred("workloads.replays.mooncake:MooncakeParams"),
            Deferred("workloads.replays.mooncake:mooncake"),
        ),
        Workload(
            "tracelab",
            "replay of TraceLab's coding sessions (path=FILE): steps, gaps in which tools run, agents that are called",
            Deferred("workloads.replays.agents:JobParams"),
            Deferred("workloads.replays.tracelab:tracelab"),
        ),
        Workload(
            "weka",
            "replay of Weka's coding agents, as AgentX has them (path=FILE or DIR), prompts shared by blocks",
            Deferred("workloads.replays.agents:JobParams"),
            Deferred("workloads.replays.weka:weka"),
        ),
        Workload(
            "otel",
            "replay of agents by their OpenTelemetry spans for generative AI (path=FILE of OTLP JSON)",
            Deferred("workloads.replays.agents:JobParams"),
            Deferred("workloads.replays.otel:otel"),
        ),
        Workload(
            "file",
            "a trace file as it stands (path=FILE): made, converted or recorded",
            Deferred("workloads.replays.trace_file:FileParams"),
            Deferred("workloads.replays.trace_file:trace_file"),
        ),
        Workload(
            "voice",
            "spoken dialogues of one or more turns, interrupted with probability p",
            Deferred("workloads.generators.voice:VoiceParams"),
            Deferred("workloads.generators.voice:voice"),
        ),
        Workload(
            "speech",
            "as voice, with what is recorded in a folder (path=DIR) or a synthesizer's sentences, as it is or degraded",
            Deferred("workloads.generators.speech:SpeechParams"),
            Deferred("workloads.generators.speech:speech_sessions"),
        ),
        Workload(
            "duplex",
            "as speech, on an open microphone: people hesitate, interrupt, say mhm, speak to others, are not alone",
            Deferred("workloads.generators.duplex:DuplexParams"),
            Deferred("workloads.generators.duplex:duplex"),
            serves="duplex",
        ),
        Workload(
            "interactive",
            "long dialogues; a longer answer takes longer to come back to",
            Deferred("workloads.generators.interactive:InteractiveParams"),
            Deferred("workloads.generators.interactive:interactive"),
        ),
        Workload(
            "revisit",
            "long contexts that overfill the KV pool, each spoken to again in the order in which they came",
            Deferred("workloads.generators.revisit:RevisitParams"),
            Deferred("workloads.generators.revisit:revisit"),
        ),
        Workload(
            "streamingbench",
            "viewers who ask about a video at StreamingBench's times",
            Deferred("workloads.generators.streamingbench:StreamingBenchParams"),
            Deferred("workloads.generators.streamingbench:streamingbench"),
        ),
        Workload(
            "omni_mix",
            "voice sessions and viewers of videos by a ratio",
            Deferred("workloads.generators.streamingbench:OmniMixParams"),
            Deferred("workloads.generators.streamingbench:omni_mix"),
        ),
        Workload(
            "metronome",
            "calls of continuous audio, offered at a rate and answered in every frame",
            Deferred("workloads.generators.calls:CallParams"),
            Deferred("workloads.generators.calls:calls"),
            serves="frames",
        ),
        Workload(
            "questions",
            "calls of spoken questions from a folder (questions=DIR), whose answers are looked for in what is said",
            Deferred("workloads.generators.questions:QuestionParams"),
            Deferred("workloads.generators.questions:questions"),
            serves="frames",
        ),
        Workload(
            "gui",
            "phone agents: a screenshot in, an action out (AndroidLab, Nova)",
            Deferred("workloads.generators.gui_episodes:GuiParams"),
            Deferred("workloads.generators.gui_episodes:gui"),
        ),
        Workload(
            "gui_episodes",
            "phone agents at whole tasks: each screenshot follows the action before (AndroidLab)",
            Deferred("workloads.generators.gui_episodes:EpisodeParams"),
            Deferred("workloads.generators.gui_episodes:gui_episodes"),
        ),
        Workload(
            "offline",
            "long documents, all at once: ConServe's DuReader, MultiNews, VCSUM",
            Deferred("workloads.generators.batch:OfflineParams"),
            Deferred("workloads.generators.batch:offline"),
        ),
        Workload(
            "novel",
            "long-tailed inputs and outputs of OmniInfer, all at once",
            Deferred("workloads.generators.batch:NovelParams"),
            Deferred("workloads.generators.batch:novel"),
        ),
        Workload(
            "co_serving",
            "people with deadlines and documents without, in two classes: an online and a batch one",
            Deferred("workloads.generators.co_serving:CoServingParams"),
            Deferred("workloads.generators.co_serving:co_serving"),
        ),
        Workload(
            "voice_batch",
            "spoken dialogues and a backlog of documents, in two classes",
            Deferred("workloads.generators.co_serving:VoiceBatchParams"),
            Deferred("workloads.generators.co_serving:voice_batch"),
        ),
    )
}


GROUP = "rehearsal.workloads"
"""Entry points of packages with workloads of their own: each names a `Workload`."""

for _entry in entry_points(group=GROUP):
    _workload = load(_entry)
    if WORKLOADS.setdefault(_workload.name, _workload) is not _workload:
        raise ValueError(f"two workloads are called {_workload.name}")


def make_trace(name: str, params: Mapping[str, Any], seed: int) -> Trace:
    """The trace of workload `name`; UserError for an unknown name, a bad parameter or bad input data."""
    if name not in WORKLOADS:
        raise unknown("workload", name, WORKLOADS)
    if not 0 <= seed <= MOST_SEED:
        raise UserError(f"workload {name}: seed should be 0 to {MOST_SEED}, got {seed}.")
    workload = WORKLOADS[name]
    return workload.generate(validate(workload.Params, params, f"workload {name}"), seed)


def serves(trace: Trace) -> Kind:
    """Return the kind of workload that an engine must serve to play `trace`: the kind of the workload that made it.

    A merged trace, which several workloads made, has the kind that is not turns, if there is one.
    """
    made_by = (WORKLOADS.get(name) for name in trace.header.generator.split("+"))
    return next((workload.serves for workload in made_by if workload and workload.serves != "turns"), "turns")
