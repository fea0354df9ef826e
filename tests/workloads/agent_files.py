"""One job of agents in the three formats in which others record them, and sums of it done by hand.

The main agent asks at 0, 90 and 140 s, and is answered after 20, 10 and 10 s. Behind its first step it calls P, which
asks at 30 and 60 s (10 and 20 s to the answer), and Q, which asks at 35 s (15 s). It goes on 10 s after P has ended,
and 40 s after its own second step.

A server that takes no time leaves: 10 s until P begins, 20 s within P, 10 s behind it, 40 s of the last tool: 80 s. Q,
which begins 15 s after the call and ends at once, is waited for and hides behind P.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

RECORDED_S, TOOLS_S, STEPS = 150.0, 80.0, 6
STEPS_OF = {
    "main": [(0, 20, 1000, 100), (90, 100, 1600, 50), (140, 150, 2000, 40)],
    "P": [(30, 40, 500, 20), (60, 80, 700, 30)],
    "Q": [(35, 50, 500, 10)],
}
"""Begin and end in s, tokens of prompt and reply."""
CACHED = {"main": [600, 1100, 1650], "P": [300, 520], "Q": [300]}
"""Of each prompt what came before: 450 of the last context's 1,650 and reply are all there, so it is kept whole."""
BLOCK = 64
OPERATION = "gen_ai.operation.name"
BEGAN = datetime(2026, 6, 1, 5, 40, tzinfo=UTC)


def write(folder: Path, name: str, **changes: Any) -> Path:
    """The file of workload `name`."""
    path = folder / f"{name}.json{'' if name == 'weka' else 'l'}"
    path.write_text("".join(json.dumps(each) + "\n" for each in WRITERS[name](**changes)))
    return path


def weka() -> list[dict[str, Any]]:
    """Blocks are 1, 2, ... of the main agent, and 100, 101, ... of those that are called, which share five."""

    def blocks(agent: str, tokens: int) -> list[int]:
        own = np.arange(-(-tokens // BLOCK))
        own += 1 if agent == "main" else 100
        return (own + 1000 * ((agent == "Q") & (own >= 105))).tolist()

    def request(agent: str, since_s: int, begin_s: int, end_s: int, tokens: int, reply: int) -> dict[str, Any]:
        what = {"t": begin_s - since_s, "type": "s" if agent == "main" else "n", "in": tokens, "out": reply}
        return {**what, "hash_ids": blocks(agent, tokens), "api_time": end_s - begin_s, "think_time": None}

    def called(agent: str, at_s: int, since_s: int) -> dict[str, Any]:
        requests = [request(agent, since_s, *step) for step in STEPS_OF[agent]]
        return {"t": at_s, "type": "subagent", "agent_id": agent, "status": "completed", "requests": requests}

    first, *later = (request("main", 0, *step) for step in STEPS_OF["main"])
    requests = [first, called("P", 29, 0), called("Q", 34, 34), *later]
    return [{"id": "session-1", "block_size": BLOCK, "hash_id_scope": "local", "requests": requests}]


def tracelab(session: str = "claude:main") -> list[dict[str, Any]]:
    """A round a line; Q and P are sessions of their own within the calls of Task of the first round."""
    rounds = []
    for agent, steps in STEPS_OF.items():
        for index, (begin_s, end_s, tokens, reply) in enumerate(steps):
            calls = agent == "main" and index == 0
            said = {"input_tokens_total": tokens, "prefix_tokens": CACHED[agent][index], "output_tokens": reply}
            events = [("tool_result" if index else "user_message", begin_s), ("reasoning", (begin_s + end_s) / 2)]
            who = {"provider": "claude", "model": "claude-opus-4-8", "project": "project_1", "user": "user_1"}
            who |= {"session_id": session if agent == "main" else f"claude:{agent}", "round_index": index}
            times = [{"event_type": kind, "timestamp": _stamp(at_s)} for kind, at_s in [*events, ("tool_call", end_s)]]
            tools = [_tool("Task", 20, at_s) for at_s in (85, 90)] if calls else [_tool("Bash", end_s, end_s + 1)]
            rounds.append({**who, **said, "timing_events": times, "tools": tools, "store": ".claude"})
    return sorted(rounds, key=lambda each: each["timing_events"][0]["timestamp"])


def otel(operation: str = "chat") -> list[dict[str, Any]]:
    """A span a document: agents, the tools by which they were called, and steps."""
    spans = [
        span("1", "", 0, 150, {OPERATION: "invoke_agent", "gen_ai.agent.name": "main"}),
        span("2", "1", 21, 81, {OPERATION: "execute_tool", "gen_ai.tool.name": "research"}),
        span("3", "2", 29, 80, {OPERATION: "invoke_agent", "gen_ai.agent.name": "research"}),
        span("4", "1", 22, 51, {OPERATION: "execute_tool", "gen_ai.tool.name": "research"}),
        span("5", "4", 34, 50, {OPERATION: "invoke_agent", "gen_ai.agent.name": "research"}),
    ]
    for agent, parent in (("main", "1"), ("P", "3"), ("Q", "5")):
        for index, (begin_s, end_s, tokens, reply) in enumerate(STEPS_OF[agent]):
            said = {
                OPERATION: operation,
                "gen_ai.request.model": "gpt-5.4",
                "gen_ai.usage.input_tokens": tokens,
                "gen_ai.usage.output_tokens": reply,
                "gen_ai.usage.cache_read.input_tokens": CACHED[agent][index],
            }
            spans.append(span(f"{agent}{index}", parent, begin_s, end_s, said))
    return [{"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": [span]}]}]} for span in spans]


WRITERS = {"tracelab": tracelab, "weka": weka, "otel": otel}


def _stamp(at_s: float) -> str:
    return (BEGAN + timedelta(seconds=at_s)).isoformat().replace("+00:00", "Z")


def _tool(name: str, begin_s: float, end_s: float) -> dict[str, Any]:
    return {"tool_name": name, "emitted_at": _stamp(begin_s), "result_at": _stamp(end_s)}


def span(id: str, parent: str, begin_s: int, end_s: int, said: dict[str, Any]) -> dict[str, Any]:
    times = [str((int(BEGAN.timestamp()) + at_s) * 10**9) for at_s in (begin_s, end_s)]
    return {
        "traceId": "trace-1",
        "spanId": id,
        "parentSpanId": parent,
        "startTimeUnixNano": times[0],
        "endTimeUnixNano": times[1],
        "attributes": [
            {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
            for key, value in said.items()
        ],
    }
