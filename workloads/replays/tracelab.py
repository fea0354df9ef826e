"""Replay of TraceLab, the coding sessions of 43 developers with Claude Code and Codex: workload `tracelab`.

A line is one request to a model (arXiv 2606.30560; github.com/uw-syfi/TraceLab, README "Data format"; code
Apache-2.0, data CC-BY-4.0), a job is a session. A request began with the last `user_message` or `tool_result` before
the model's first output, and ended with its last. `prefix_tokens` of a prompt were in the provider's cache: so much
of the context before is kept, the rest is new. The first prompt of a session shares them with all sessions of that
model.

No line names the calling session. A tool `Agent` or `Task` that ran for 10 s or more called the sessions of the same
user and project that lie within its time, as aiperf's reader of this trace has it; of several such tools the
shortest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from workloads.errors import UserError
from workloads.files.record_file import Record, read_records
from workloads.replays.agents import Agent, Job, JobParams, Step, counted, replay_jobs
from workloads.trace import Trace

INPUTS, OUTPUTS = ("user_message", "tool_result"), ("text", "reasoning", "tool_call")
CALLS_AGENTS = ("Agent", "Task")
SHORTEST_CALL_S = 10.0
"""A shorter call has failed, or called no session. [config: aiperf, dataset/loader/_tracelab_convert.py]"""


@dataclass(slots=True)
class _Session:
    """One `session_id`: user, steps, and the times during which it called agents. `fault`: the first in it."""

    project: tuple[str, str]
    steps: list[Step] = field(default_factory=list)
    calls: list[tuple[float, float]] = field(default_factory=list)
    fault: UserError | None = None

    @property
    def span(self) -> tuple[float, float]:
        return min(step.begin_s for step in self.steps), max(step.end_s for step in self.steps)


def tracelab(params: JobParams, seed: int) -> Trace:
    """Sessions as jobs, at their recorded times; UserError names file, line and field of bad input."""
    counts: Counter[str] = Counter()

    meanings = {
        "called": "sessions are agents that a tool of another called, by their times",
        "people": "steps follow a person's message",
        "undated": "requests without a time are left out",
    }
    return replay_jobs("tracelab", _jobs(params, counts), params, seed, counted(counts, meanings))


def _jobs(params: JobParams, counts: Counter[str]) -> Iterator[Job | UserError]:
    sessions: dict[str, _Session] = {}
    for line in read_records(params.path):
        project = line.text("user", ""), line.text("project", "")
        session = sessions.setdefault(line.text("session_id"), _Session(project))
        try:
            _add(line, session, counts)
        except UserError as error:
            session.fault = session.fault or error
    yield from (session.fault for session in sessions.values() if session.fault is not None)
    sessions = {name: each for name, each in sessions.items() if each.steps and each.fault is None}
    spans = {name: session.span for name, session in sessions.items()}
    parents = _callers(sessions, spans)
    counts["called"] = len(parents)
    for name in sorted(sessions, key=spans.__getitem__):
        if name not in parents:
            yield _job(name, sessions, spans, parents)


def _add(line: Record, session: _Session, counts: Counter[str]) -> None:
    """One request, and the agents that its tools called."""
    for tool in line.records("tools"):
        if tool.text("tool_name", "") in CALLS_AGENTS and tool.fields.get("result_at"):
            call = tool.date_s("emitted_at"), tool.date_s("result_at")
            if call[1] - call[0] >= SHORTEST_CALL_S:
                session.calls.append(call)
    events = [(event.text("event_type"), event.date_s("timestamp")) for event in line.records("timing_events")]
    out_s = [at_s for kind, at_s in events if kind in OUTPUTS]
    in_s = [(at_s, kind) for kind, at_s in events if kind in INPUTS and (not out_s or at_s <= min(out_s))]
    if not in_s and not out_s:
        counts["undated"] += 1
        return
    begin_s, kind = max(in_s) if in_s else (min(out_s), "")
    counts["people"] += kind == "user_message"
    step = Step(
        begin_s,
        max([begin_s, *out_s]),
        line.tokens("input_tokens_total"),
        line.tokens("output_tokens"),
        f"{line.text('provider', '')}/{line.text('model', '')}",
        line.tokens("prefix_tokens"),
    )
    if step.cached > step.input_tokens:
        line.refuse("prefix_tokens", f"at most input_tokens_total, which is {step.input_tokens}")
    session.steps.append(step)


def _callers(sessions: dict[str, _Session], spans: dict[str, tuple[float, float]]) -> dict[str, str]:
    """Return for each session within a call the session with the shortest such call."""
    calls: dict[tuple[str, str], list[tuple[float, float, float, str]]] = {}
    for name, session in sessions.items():
        calls.setdefault(session.project, []).extend((end - begin, begin, end, name) for begin, end in session.calls)
    callers: dict[str, str] = {}
    for name, (begin_s, end_s) in spans.items():
        around = [
            (length, caller)
            for length, begin, end, caller in calls[sessions[name].project]
            if begin < begin_s and end_s <= end and caller != name
        ]
        if around:
            callers[name] = min(around)[1]
    return callers


def _job(
    name: str, sessions: dict[str, _Session], spans: dict[str, tuple[float, float]], parents: dict[str, str]
) -> Job:
    members = [name]
    for member in members:  # grows as agents that are called are found
        members += sorted((each for each, caller in parents.items() if caller == member), key=spans.__getitem__)
    agents = [Agent(sessions[each].steps, members.index(parents[each]) if each != name else None) for each in members]
    return Job(agents, come_s=spans[name][0])
