"""Replay of agents by their OpenTelemetry spans: workload `otel`.

OTLP in JSON, as the collector's file exporter writes it, a document a line; spans by the semantic conventions for
generative AI (opentelemetry.io/docs/specs/semconv/gen-ai, Apache-2.0, in development; the names of v1.36 are read too).
A trace is a job. Spans whose `gen_ai.operation.name` is chat, text_completion or generate_content are steps, of the
agent whose `invoke_agent` span they are in; it is called by the agent whose span that is in. Time between steps is the
tools'. `gen_ai.usage.cache_read.input_tokens` of a prompt came before; without it, all that can have.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workloads.errors import UserError
from workloads.files.record_file import Record, read_records, record
from workloads.replays.agents import Agent, Job, JobParams, Step, counted, replay_jobs, tried
from workloads.trace import Trace

MODEL_CALLS = ("chat", "text_completion", "generate_content")
INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
CACHED = ("gen_ai.usage.cache_read.input_tokens",)
OPERATION, MODEL, AGENT = "gen_ai.operation.name", "gen_ai.request.model", "gen_ai.agent.name"


@dataclass(slots=True)
class _Span:
    id: str
    parent: str
    begin_s: float
    end_s: float
    attributes: Record
    """Its attributes."""

    @property
    def operation(self) -> str:
        return self.attributes.text(OPERATION, "")


def otel(params: JobParams, seed: int) -> Trace:
    """Traces as jobs, at their recorded times; UserError names file, line, span and field of bad input."""
    counts: Counter[str] = Counter()

    meanings = {
        "agents": "further agents were invoked",
        "uncounted": "calls of a model without usage, as failed ones, are left out",
        "inside": "calls of a model within another's span are that call, and left out",
    }
    return replay_jobs("otel", _jobs(params, counts), params, seed, counted(counts, meanings))


def _jobs(params: JobParams, counts: Counter[str]) -> Iterator[Job | UserError]:
    traces: dict[str, list[Record]] = {}
    for document in read_records(params.path):
        for resource in document.records("resourceSpans"):
            for scope in resource.records("scopeSpans"):
                for span in scope.records("spans"):
                    traces.setdefault(span.text("traceId"), []).append(span)
    if not traces:
        raise UserError(f"{params.path} has no spans in resourceSpans; give OTLP traces in JSON.")
    for spans in traces.values():
        yield from tried(lambda spans=spans: _job(spans, counts))


def _job(records: list[Record], counts: Counter[str]) -> Job | None:
    spans = {span.id: span for span in sorted(map(_span, records), key=lambda span: span.begin_s)}

    def around(span: _Span, operations: Sequence[str]) -> str:
        """The innermost span of these operations that it is in; "": none."""
        seen = {span.id}
        while span.parent in spans and span.parent not in seen:
            span = spans[span.parent]
            seen.add(span.id)
            if span.operation in operations:
                return span.id
        return ""

    def agent_of(span: _Span) -> str:
        return around(span, ("invoke_agent",))

    steps: dict[str, list[Step]] = {}
    for span in spans.values():
        if span.operation in MODEL_CALLS:
            if around(span, MODEL_CALLS):
                counts["inside"] += 1
            elif (step := _step(span, spans.get(agent_of(span)))) is None:
                counts["uncounted"] += 1
            else:
                steps.setdefault(agent_of(span), []).append(step)
    if not steps:
        return None  # a trace of something else
    order = sorted(steps, key=lambda id: (id != "", steps[id][0].begin_s))
    agents = []
    for id in order:
        caller = agent_of(spans[id]) if id else ""
        while caller and caller not in order[: len(agents)]:
            caller = agent_of(spans[caller])
        agents.append(Agent(steps[id], order.index(caller) if caller in order else 0))
    agents[0].parent = None
    counts["agents"] += len(agents) - 1
    return Job(agents, come_s=min(step.begin_s for of_agent in steps.values() for step in of_agent))


def _span(span: Record) -> _Span:
    attributes = {}
    for item in span.records("attributes"):
        value = item.fields.get("value")
        attributes[item.text("key")] = next(iter(value.values()), None) if isinstance(value, dict) else value
    begin_s, end_s = (_time_s(span, name) for name in ("startTimeUnixNano", "endTimeUnixNano"))
    if end_s < begin_s:
        span.refuse("endTimeUnixNano", "after startTimeUnixNano")
    parent = span.text("parentSpanId") if span.fields.get("parentSpanId") else ""
    return _Span(span.text("spanId"), parent, begin_s, end_s, record(attributes, span.place))


def _time_s(span: Record, name: str) -> float:
    """Nanoseconds, in quotes or not, as s."""
    value = span.fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | str) or not str(value).isdecimal():
        span.refuse(name, "a number of nanoseconds")
    return int(value) / 1e9


def _step(span: _Span, agent: _Span | None) -> Step | None:
    """Return the step; None without token counts."""
    counts = [_tokens(span.attributes, names) for names in (INPUT, OUTPUT, CACHED)]
    if counts[0] is None or counts[1] is None:
        return None
    text = f"{agent.attributes.text(AGENT, '') if agent else ''}/{span.attributes.text(MODEL, '')}"
    cached = math.inf if counts[2] is None else counts[2]
    if counts[0] < cached < math.inf:
        span.attributes.refuse(CACHED[0], f"at most {INPUT[0]}, which is {counts[0]}")
    return Step(span.begin_s, span.end_s, counts[0], counts[1], text, cached)


def _tokens(attributes: Record, names: tuple[str, ...]) -> int | None:
    """A whole number, which JSON of 64 bits has in quotes."""
    name = next((name for name in names if attributes.fields.get(name) is not None), None)
    if name is None:
        return None
    value = attributes.fields[name]
    if isinstance(value, str) and value.isdecimal():
        return record({name: int(value)}, attributes.place).tokens(name)
    return attributes.tokens(name)
