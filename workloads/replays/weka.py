"""Replay of Weka's traces of coding agents, those of the AgentX benchmark: workload `weka`.

An object is a session of Claude Code, one a file or one a line, as the sets `cc-traces-weka-*` of SemiAnalysis have
them (Apache-2.0). `requests` holds requests of the main agent (`type` n, or s where it was streamed) at `t` s, each
answered after `api_time` s, and agents that were called (`type` subagent) with requests of their own. `in` and `out`
count tokens; `hash_ids` name the blocks of `block_size` tokens of the prompt, for this session alone. An agent's times
are of the session or, where its first lies before the agent's own `t`, counted from there, as aiperf reads them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from workloads.errors import UserError
from workloads.files.record_file import Record, read_records
from workloads.replays.agents import Agent, Job, JobParams, Step, replay_jobs, tried
from workloads.trace import Trace


def weka(params: JobParams, seed: int) -> Trace:
    """Sessions as jobs; UserError names file, line, request and field of bad input."""
    counts: Counter[str] = Counter()

    def notes() -> list[str]:
        lines = [f"{counts['agents']} agents were called, {counts['empty']} of them without a request"]
        if counts["untimed"]:
            lines.append(f"{counts['untimed']} requests have no api_time: they took no time, and the gap after has it")
        return lines

    return replay_jobs("weka", _jobs(params, counts), params, seed, notes)


def _jobs(params: JobParams, counts: Counter[str]) -> Iterator[Job | UserError]:
    for session in read_records(params.path):
        yield from tried(lambda session=session: _job(session, counts))


def _job(session: Record, counts: Counter[str]) -> Job:
    name, block = session.text("id"), session.tokens("block_size")
    if not block:
        session.refuse("block_size", "1 or more")
    main, called = list[Step](), list[Agent]()
    for entry in session.records("requests"):
        if entry.text("type") == "subagent":
            begin_s, requests = entry.number("t"), entry.records("requests")
            since_s = begin_s if requests and requests[0].number("t") < begin_s else 0.0
            called.append(Agent([_step(each, name, block, since_s, counts) for each in requests], parent=0))
            counts["empty"] += not requests
        else:
            main.append(_step(entry, name, block, 0.0, counts))
    counts["agents"] += len(called)
    called.sort(key=lambda agent: agent.steps[0].begin_s if agent.steps else 0.0)
    return Job([Agent(main), *called], block)


def _step(request: Record, job: str, block: int, since_s: float, counts: Counter[str]) -> Step:
    if request.text("type") not in ("n", "s"):
        request.refuse("type", "n, s or subagent")
    ids = request.fields.get("hash_ids") or []
    if not isinstance(ids, list) or not all(type(id) is int for id in ids):
        request.refuse("hash_ids", "a list of whole numbers")
    begin_s, input_tokens = since_s + request.number("t"), request.tokens("in")
    if len(ids) > -(-input_tokens // block):
        request.refuse("hash_ids", f"as many blocks of {block} as {input_tokens} tokens have, or fewer")
    counts["untimed"] += request.fields.get("api_time") is None
    end_s, whole = begin_s + request.number("api_time", 0.0), ids[: input_tokens // block]
    first = f"{job}/{whole[0]}" if whole else job
    return Step(begin_s, end_s, input_tokens, request.tokens("out"), first, blocks=whole)
