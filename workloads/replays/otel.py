"""Replay of agents by their OpenTelemetry spans: workload `otel`.

OTLP in JSON, as the collector's file exporter writes it, a document a line; spans by the semantic conventions for
generative AI (opentelemetry.io/docs/specs/semconv/gen-ai, Apache-2.0, in development) or those of other tracers
(`NAMES`). A trace is a job. Calls of a model are steps, of the agent whose span they are in; it is called by the agent
whose span that is in. Time between steps is the tools'. The cached tokens of a prompt came before; without their
number, all that can have. Where the cached tokens are more than the prompt's, they are counted apart, as in Anthropic's
API (platform.claude.com/docs, usage), and belong to the prompt.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads.errors import UserError, printable
from workloads.files.json_file import parse
from workloads.files.record_file import Record, read_records, record
from workloads.replays.agents import Agent, Job, JobParams, Step, counted, replay_jobs, tried
from workloads.trace import Trace

_USAGE = "langfuse.observation.usage_details"
NAMES = {
    "operation": (
        "gen_ai.operation.name", "openinference.span.kind", "langfuse.observation.type", "traceloop.span.kind",
        "llm.request.type", "span.type",
    ),
    "input": (
        "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt", "llm.usage.prompt_tokens",
        f"{_USAGE}.input", f"{_USAGE}.prompt_tokens", f"{_USAGE}.input_tokens", "input_tokens",
    ),
    "output": (
        "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion",
        "llm.usage.completion_tokens", f"{_USAGE}.output", f"{_USAGE}.completion_tokens", f"{_USAGE}.output_tokens",
        "output_tokens",
    ),
    "cached": (
        "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens",
        "llm.token_count.prompt_details.cache_read", "llm.usage.cache_read_input_tokens",
        f"{_USAGE}.input_cached_tokens", f"{_USAGE}.input_cache_read", f"{_USAGE}.cache_read_input_tokens",
        f"{_USAGE}.prompt_tokens_details.cached_tokens", f"{_USAGE}.input_tokens_details.cached_tokens",
        "cache_read_tokens",
    ),
    "written": (
        "gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_creation_input_tokens",
        "llm.token_count.prompt_details.cache_write", "llm.usage.cache_creation_input_tokens",
        f"{_USAGE}.input_cache_creation", f"{_USAGE}.cache_creation_input_tokens", "cache_creation_tokens",
    ),
    "model": (
        "gen_ai.request.model", "gen_ai.response.model", "llm.model_name", "langfuse.observation.model.name",
        "llm.request.model", "model",
    ),
    "agent": ("gen_ai.agent.name", "agent.name", "traceloop.entity.name"),
}  # fmt: skip
"""Statement of a span -> its attributes by the conventions, the first that is there: OpenTelemetry's current and older
ones, OpenInference's, Langfuse's, Traceloop's, Claude Code's."""
MODEL_CALLS = ("chat", "text_completion", "generate_content", "llm", "generation", "completion", "llm_request")
"""Operations that are calls of a model, in small letters; `AGENTS`: of an agent."""
APART = (
    "cache_read_tokens",
    f"{_USAGE}.input_cached_tokens",
    f"{_USAGE}.input_cache_read",
    f"{_USAGE}.cache_read_input_tokens",
)
"""Names of cached tokens that are not part of the prompt's by their convention: Claude Code's and Langfuse's own. What
Langfuse's SDK passes on as OpenAI states it is part of the prompt."""
AGENTS = ("invoke_agent", "agent")


@dataclass(slots=True)
class _Span:
    id: str
    parent: str
    begin_s: float
    end_s: float
    attributes: Record

    @property
    def operation(self) -> str:
        """The first that is one of a model or of an agent, in small letters; "" without any."""
        said = (str(self.attributes.fields.get(name)).lower() for name in NAMES["operation"])
        return next((each for each in said if each in MODEL_CALLS + AGENTS), "")

    def text(self, what: str) -> str:
        """Return the first of these attributes that is there, as text; "" without any."""
        return str(next((value for name in NAMES[what] if (value := self.attributes.fields.get(name))), ""))


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
    found = 0
    for spans in traces.values():
        for job in tried(lambda spans=spans: _job(spans, counts)):
            found += 1
            yield job
    if not found:
        raise _nothing([span for spans in traces.values() for span in spans], params.path)


def _nothing(spans: Sequence[Record], path: Path) -> UserError:
    """Return the error for spans without a call of a model with its tokens: what was looked for and found."""
    names = Counter(str(each.fields.get("key")) for span in spans for each in span.records("attributes"))
    found = ", ".join(f"{name} ({n})" for name, n in names.most_common()) or "none"
    looked = "; ".join(f"{what}: {' or '.join(NAMES[what])}" for what in ("operation", "input", "output"))
    return UserError(
        f"{path}: none of {len(spans)} spans is a call of a model with its tokens. Attributes that are looked for: "
        f"{looked}, with an operation of {', '.join(MODEL_CALLS)}. Attributes that are there: {printable(found, 600)}."
    )


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
        return around(span, AGENTS)

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
        key, value = item.text("key"), next(iter(value.values()), None) if isinstance(value, dict) else value
        if key.startswith("langfuse.") and isinstance(value, str) and isinstance(inner := _json(value), dict):
            attributes |= _flat(key, inner)
        attributes[key] = value
    begin_s, end_s = (_time_s(span, name) for name in ("startTimeUnixNano", "endTimeUnixNano"))
    if end_s < begin_s:
        span.refuse("endTimeUnixNano", "after startTimeUnixNano")
    parent = span.text("parentSpanId") if span.fields.get("parentSpanId") else ""
    return _Span(span.text("spanId"), parent, begin_s, end_s, record(attributes, span.place))


def _flat(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields as `outer.inner`, those of objects within too."""
    flat = {}
    for key, value in fields.items():
        flat |= _flat(f"{name}.{key}", value) if isinstance(value, dict) else {f"{name}.{key}": value}
    return flat


def _json(text: str) -> Any:
    try:
        return parse(text)
    except ValueError:
        return None


def _time_s(span: Record, name: str) -> float:
    """Nanoseconds, in quotes or not, as s."""
    value = span.fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | str) or not str(value).isdecimal():
        span.refuse(name, "a number of nanoseconds")
    return int(value) / 1e9


def _step(span: _Span, agent: _Span | None) -> Step | None:
    """Return the step; None without token counts."""
    counts = [_tokens(span.attributes, NAMES[what]) for what in ("input", "output", "cached", "written")]
    if counts[0] is None or counts[1] is None:
        return None
    text = f"{agent.text('agent') if agent else ''}/{span.text('model')}"
    prompt, cached = counts[0], math.inf if counts[2] is None else counts[2]
    apart = any(name in span.attributes.fields for name in APART)
    if cached < math.inf and (apart or prompt < cached):
        prompt += int(cached) + (counts[3] or 0)
    return Step(span.begin_s, span.end_s, prompt, counts[1], text, cached)


def _tokens(attributes: Record, names: tuple[str, ...]) -> int | None:
    """A whole number, which JSON of 64 bits has in quotes."""
    name = next((name for name in names if attributes.fields.get(name) is not None), None)
    if name is None:
        return None
    value = attributes.fields[name]
    if isinstance(value, str) and value.isdecimal():
        return record({name: int(value)}, attributes.place).tokens(name)
    return attributes.tokens(name)
