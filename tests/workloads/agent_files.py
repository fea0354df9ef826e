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
BEGAN = datetime(2026, 6, 1, 5, 40, tzinfo=UTC)


def write(folder: Path, name: str, **changes: Any) -> Path:
    """The file of workload `name`."""
    path = folder / f"{name}.json{'' if name == 'weka' else 'l'}"
    path.write_text("".join(json.dumps(each) + "\n" for each in WRITERS[name](**changes)))
    return path


def weka() -> list[dict[str, Any]]:
    """Blocks are 1, 2, ... of the main agent, and 100, 101, ... of those that are called, which share five."""
    first = {"main": 1, "P": 100, "Q": 100}

    def requests(agent: str, since_s: int = 0) -> list[dict[str, Any]]:
        return [
            {
                "t": begin_s - since_s,
                "type": "s" if agent == "main" else "n",
                "model": "claude-opus-4-5",
                "in": tokens,
                "out": reply,
                "hash_ids": [
                    first[agent] + i + (1000 if agent == "Q" and i >= 5 else 0) for i in range(-(-tokens // BLOCK))
                ],
                "input_types": ["text"],
                "output_types": ["text"],
                "stop": "tool_use",
                "api_time": end_s - begin_s,
                "think_time": None,
            }
            for begin_s, end_s, tokens, reply in STEPS_OF[agent]
        ]  # fmt: skip

    def called(agent: str, at_s: int, since_s: int) -> dict[str, Any]:
        return {
            "t": at_s,
            "type": "subagent",
            "agent_id": f"agent_{agent}",
            "subagent_type": "Explore",
            "duration_ms": None,
            "total_tokens": None,
            "tool_use_count": None,
            "status": "completed",
            "models": ["claude-haiku-4-5"],
            "requests": requests(agent, since_s),
        }

    main = requests("main")
    return [
        {
            "id": "session-1",
            "models": ["claude-opus-4-5", "claude-haiku-4-5"],
            "block_size": BLOCK,
            "hash_id_scope": "local",
            "tool_tokens": 0,
            "system_tokens": 0,
            "requests": [main[0], called("P", 29, 0), called("Q", 34, 34), *main[1:]],
        }
    ]


def tracelab(session: str = "claude:main") -> list[dict[str, Any]]:
    """A round a line; Q and P are sessions of their own within the calls of Task of the first round."""
    rounds = []
    for agent, steps in STEPS_OF.items():
        for index, (begin_s, end_s, tokens, reply) in enumerate(steps):
            cached = CACHED[agent][index]
            tools = [_tool("Bash", end_s, end_s + 1)]
            if agent == "main" and index == 0:
                tools = [_tool("Task", 20, at_s) for at_s in (85, 90)]
            rounds.append(
                {
                    "provider": "claude",
                    "project": "project_1",
                    "user": "user_1",
                    "session_id": session if agent == "main" else f"claude:{agent}",
                    "round_index": index,
                    "model": "claude-opus-4-8",
                    "input_tokens_total": tokens,
                    "prefix_tokens": cached,
                    "newly_append_tokens": tokens - cached,
                    "output_tokens": reply,
                    "reasoning_output_tokens": None,
                    "timing_events": [
                        _event("tool_result" if index else "user_message", begin_s),
                        _event("reasoning", (begin_s + end_s) / 2),
                        _event("tool_call", end_s),
                    ],
                    "tools": tools,
                    "first_input_event_type": "tool_result" if index else "user_message",
                    "store": ".claude",
                }
            )  # fmt: skip
    return sorted(rounds, key=lambda each: each["timing_events"][0]["timestamp"])


def otel(operation: str = "chat") -> list[dict[str, Any]]:
    """A span a document: agents, the tools by which they were called, and steps."""
    spans = [
        _span("1", "", "invoke_agent", 0, 150, {"gen_ai.agent.name": "main"}),
        _span("2", "1", "execute_tool", 21, 81, {"gen_ai.tool.name": "research"}),
        _span("3", "2", "invoke_agent", 29, 80, {"gen_ai.agent.name": "research"}),
        _span("4", "1", "execute_tool", 22, 51, {"gen_ai.tool.name": "research"}),
        _span("5", "4", "invoke_agent", 34, 50, {"gen_ai.agent.name": "research"}),
    ]
    for agent, parent in (("main", "1"), ("P", "3"), ("Q", "5")):
        for index, (begin_s, end_s, tokens, reply) in enumerate(STEPS_OF[agent]):
            said = {
                "gen_ai.request.model": "gpt-5.4",
                "gen_ai.usage.input_tokens": tokens,
                "gen_ai.usage.output_tokens": reply,
                "gen_ai.usage.cache_read.input_tokens": CACHED[agent][index],
            }
            spans.append(_span(f"{agent}{index}", parent, operation, begin_s, end_s, said))
    return [{"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": [span]}]}]} for span in spans]


WRITERS = {"tracelab": tracelab, "weka": weka, "otel": otel}


def _stamp(at_s: float) -> str:
    return (BEGAN + timedelta(seconds=at_s)).isoformat().replace("+00:00", "Z")


def _event(kind: str, at_s: float) -> dict[str, Any]:
    return {"event_type": kind, "timestamp": _stamp(at_s), "source": "test"}


def _tool(name: str, begin_s: float, end_s: float) -> dict[str, Any]:
    wall_ms = round(1000 * (end_s - begin_s))
    return {
        "tool_name": name,
        "emitted_at": _stamp(begin_s),
        "result_at": _stamp(end_s),
        "tool_wall_latency_ms": wall_ms,
    }


def _span(id: str, parent: str, operation: str, begin_s: int, end_s: int, said: dict[str, Any]) -> dict[str, Any]:
    attributes = {"gen_ai.operation.name": operation, **said}
    return {
        "traceId": "trace-1",
        "spanId": id,
        "parentSpanId": parent,
        "name": operation,
        "kind": 3,
        "startTimeUnixNano": str(_nanoseconds(begin_s)),
        "endTimeUnixNano": str(_nanoseconds(end_s)),
        "attributes": [
            {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
            for key, value in attributes.items()
        ],
    }  # fmt: skip


def _nanoseconds(at_s: int) -> int:
    return (int(BEGAN.timestamp()) + at_s) * 10**9
