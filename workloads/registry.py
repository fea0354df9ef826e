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

_OURS: tuple[tuple[str, ...], ...] = (
    ("poisson", "generators.open_loop:PoissonParams", "generators.open_loop:poisson",
     "independent single requests, Poisson arrivals, ShareGPT-like lengths"),
    ("gamma", "generators.open_loop:GammaParams", "generators.open_loop:gamma",
     "as poisson, but arrivals in bursts: Gamma gaps of a given CV"),
    ("weibull", "generators.open_loop:WeibullParams", "generators.open_loop:weibull",
     "as gamma, with Weibull gaps"),
    ("constant", "generators.open_loop:PoissonParams", "generators.open_loop:constant",
     "as poisson, but every gap is 1/rate"),
    ("ramp", "generators.open_loop:RampParams", "generators.open_loop:ramp",
     "as poisson, but the rate rises or falls, on a line or in steps"),
    ("burstgpt_fit", "generators.burstgpt_fit:BurstGptFitParams", "generators.burstgpt_fit:burstgpt_fit",
     "single requests with BurstGPT's bursts and lengths, without its file"),
    ("sharegpt", "generators.open_loop:ShareGptParams", "generators.open_loop:sharegpt",
     "short or long exchanges of ShareGPT, from a file of it or of other chats, or fitted"),
    ("conversations", "generators.conversations:ConversationParams", "generators.conversations:conversations",
     "conversations of a file turn by turn, whose own text live runs send (path=FILE)"),
    ("servegen", "generators.servegen:ServeGenParams", "generators.servegen:servegen",
     "many clients with their own rates and bursts, from ServeGen's files or fitted"),
    ("burstgpt", "replays.replay:ReplayParams", "replays.csv_logs:burstgpt",
     "replay of a BurstGPT CSV (path=FILE), 6 or 8 columns"),
    ("sessions", "replays.tables:TableParams", "replays.tables:sessions",
     "replay of any table of requests (path=FILE, CSV, JSON or Parquet): times, lengths or texts, sessions"),
    ("azure", "replays.replay:ReplayParams", "replays.csv_logs:azure",
     "replay of an Azure LLM inference trace (path=FILE)"),
    ("mooncake", "replays.mooncake:MooncakeParams", "replays.mooncake:mooncake",
     "replay of a Mooncake trace (path=FILE): its clock's 3 s steps undone, its conversations found"),
    ("tracelab", "replays.agents:JobParams", "replays.tracelab:tracelab",
     "replay of TraceLab's coding sessions (path=FILE): steps, gaps in which tools run, agents that are called"),
    ("weka", "replays.agents:JobParams", "replays.weka:weka",
     "replay of Weka's coding agents, as AgentX has them (path=FILE or DIR), prompts shared by blocks"),
    ("otel", "replays.agents:JobParams", "replays.otel:otel",
     "replay of agents by their OpenTelemetry spans for generative AI (path=FILE of OTLP JSON)"),
    ("file", "replays.trace_file:FileParams", "replays.trace_file:trace_file",
     "a trace file as it stands (path=FILE): made, converted or recorded"),
    ("voice", "generators.voice:VoiceParams", "generators.voice:voice",
     "spoken dialogues of one or more turns, interrupted with probability p"),
    ("speech", "generators.speech:SpeechParams", "generators.speech:speech_sessions",
     "as voice, with what is recorded in a folder (path=DIR) or a synthesizer's sentences, as it is or degraded"),
    ("duplex", "generators.duplex:DuplexParams", "generators.duplex:duplex", "duplex",
     "as speech, on an open microphone: people hesitate, interrupt, say mhm, speak to others, are not alone"),
    ("interactive", "generators.interactive:InteractiveParams", "generators.interactive:interactive",
     "long dialogues; a longer answer takes longer to come back to"),
    ("revisit", "generators.revisit:RevisitParams", "generators.revisit:revisit",
     "long contexts that overfill the KV pool, each spoken to again in the order in which they came"),
    ("streamingbench", "generators.streamingbench:StreamingBenchParams", "generators.streamingbench:streamingbench",
     "viewers who ask about a video at StreamingBench's times"),
    ("omni_mix", "generators.streamingbench:OmniMixParams", "generators.streamingbench:omni_mix",
     "voice sessions and viewers of videos by a ratio"),
    ("metronome", "generators.calls:CallParams", "generators.calls:calls", "frames",
     "calls of continuous audio, offered at a rate and answered in every frame"),
    ("questions", "generators.questions:QuestionParams", "generators.questions:questions", "frames",
     "calls of spoken questions from a folder (questions=DIR), whose answers are looked for in what is said"),
    ("gui", "generators.gui_episodes:GuiParams", "generators.gui_episodes:gui",
     "phone agents: a screenshot in, an action out (AndroidLab, Nova)"),
    ("gui_episodes", "generators.gui_episodes:EpisodeParams", "generators.gui_episodes:gui_episodes",
     "phone agents at whole tasks: each screenshot follows the action before (AndroidLab)"),
    ("offline", "generators.batch:OfflineParams", "generators.batch:offline",
     "long documents, all at once: ConServe's DuReader, MultiNews, VCSUM"),
    ("novel", "generators.batch:NovelParams", "generators.batch:novel",
     "long-tailed inputs and outputs of OmniInfer, all at once"),
    ("co_serving", "generators.co_serving:CoServingParams", "generators.co_serving:co_serving",
     "people with deadlines and documents without, in two classes: an online and a batch one"),
    ("voice_batch", "generators.co_serving:VoiceBatchParams", "generators.co_serving:voice_batch",
     "spoken dialogues and a backlog of documents, in two classes"),
)  # fmt: skip
"""A row for each workload of ours: name, parameters, what makes its trace, kind if it is not turns, summary."""

WORKLOADS = {
    name: Workload(name, summary, Deferred(f"workloads.{params}"), Deferred(f"workloads.{generate}"), *serves)
    for name, params, generate, *serves, summary in _OURS
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
