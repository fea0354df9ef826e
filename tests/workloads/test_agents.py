"""Recorded jobs of agents: their steps, which turn waits for which, and the common prefixes of prompts."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders import refused, typed_turn
from tests.workloads import agent_files
from tests.workloads.agent_files import CACHED, RECORDED_S, STEPS, STEPS_OF, TOOLS_S, WRITERS
from workloads.columns.jobs import OWN, job_of, links
from workloads.errors import UserError
from workloads.formats import load_trace, save_trace
from workloads.registry import make_trace
from workloads.statistics.describe import statistics
from workloads.trace import Session, Trace
from workloads.transforms.nominal import nominal
from workloads.transforms.shard import join, shard
from workloads.transforms.transform import loop, merge, thin

FORMATS = sorted(WRITERS)


def made(folder: Path, name: str, **params) -> Trace:
    return make_trace(name, {"path": agent_files.write(folder, name), "network_ms": 0, **params}, 0)


@pytest.mark.parametrize("name", FORMATS)
def test_every_step_of_the_file_is_a_turn_with_its_tokens(name: str, tmp_path: Path) -> None:
    columns = made(tmp_path, name).columns()
    prompts = columns["history_tokens"] + columns["input_tokens"]
    found = zip(prompts.tolist(), columns["output_tokens"].tolist(), strict=True)
    assert sorted(found) == sorted((tokens, reply) for steps in STEPS_OF.values() for _, _, tokens, reply in steps)
    assert len(np.unique(columns["session"])) == len(STEPS_OF)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("params", "tools_s"),
    [
        ({}, 10 + 20 + 10 + 40),  # until P is called, within P, after P, the last tool
        ({"max_gap_s": 10}, 10 + 10 + 10 + 10),
    ],
)
def test_a_server_that_takes_no_time_leaves_the_time_of_the_tools(
    name: str, params: dict, tools_s: int, tmp_path: Path
) -> None:
    trace = made(tmp_path, name, **params)
    assert nominal(trace).end_s.max() == tools_s
    assert np.nanmax(trace.columns()["recorded_s"]) == RECORDED_S - TOOLS_S + tools_s


@pytest.mark.parametrize("name", FORMATS)
def test_statistics_count_jobs_as_the_file_does(name: str, tmp_path: Path) -> None:
    found = statistics(loop(made(tmp_path, name), 3, 10.0))
    _, _, prompts, replies = np.transpose([step for steps in STEPS_OF.values() for step in steps])
    means = {"steps": STEPS, "prompt_tokens": prompts.sum(), "recorded_s": RECORDED_S, "tools_s": TOOLS_S}
    for quantity, mean in means.items():
        measured = found["quantities"][f"job_{quantity}"]
        assert (measured["n"], measured["mean"]) == (3, mean)
    assert found["arrivals"]["n"] == 3
    assert found["quantities"]["output_tokens"]["total"] == 3 * replies.sum()


@pytest.mark.parametrize("name", FORMATS)
def test_called_agents_wait_for_the_call_and_are_waited_for(name: str, tmp_path: Path) -> None:
    sessions = {tuple(turn.output_tokens for turn in each.turns): each for each in made(tmp_path, name).sessions}
    main, p, q = (sessions[tuple(step[3] for step in STEPS_OF[agent])] for agent in ("main", "P", "Q"))

    def waits_for(session: Session, turn: int) -> set[tuple[int, int]]:
        return {(session.id + offset, awaited) for offset, awaited in links(session.turns[turn].job.waits)}

    assert waits_for(p, 0) == waits_for(q, 0) == {(main.id, 0)}
    assert waits_for(main, 1) == {(p.id, 1), (q.id, 0)}
    assert waits_for(main, 0) == waits_for(main, 2) == set()
    thinks = [[turn.think_s for turn in session.turns] for session in (main, p, q)]
    assert thinks == [[None, 10, 40], [10, 20], [15]]


@pytest.mark.parametrize("name", ["tracelab", "otel"])
def test_a_prompt_shares_the_cached_tokens_that_the_file_states(name: str, tmp_path: Path) -> None:
    turns = [turn for session in made(tmp_path, name).sessions for turn in session.turns]
    assert sorted({turn.history_tokens or 0 for turn in turns}) == sorted({n for each in CACHED.values() for n in each})
    assert {turn.job.prefix for turn in turns if turn.turn} == {OWN}
    of_main, *of_called = [turn.job.prefix for turn in turns if not turn.turn]
    assert of_main
    assert len(set(of_called)) == 1  # P and Q begin with the same text


def test_a_prompt_of_weka_shares_the_full_blocks_in_common(tmp_path: Path) -> None:
    """Blocks of 64: 15 whole ones of the first prompt are in the second; P and Q share five, and nothing with main."""
    turns = {turn.output_tokens: turn for session in made(tmp_path, "weka").sessions for turn in session.turns}
    shared = {reply: (turn.job.prefix, turn.history_tokens) for reply, turn in turns.items()}
    assert shared[100] == (None, 0)
    assert (shared[50], shared[40], shared[30]) == ((OWN, 15 * 64), (OWN, 25 * 64), (OWN, 7 * 64))
    assert shared[20] == shared[10]
    assert shared[20][0] not in (None, OWN)
    assert shared[20][1] == 5 * 64


def replayed(path: Path, *requests: dict[str, Any]) -> Trace:
    """A job of Weka's with these requests."""
    usual = {"type": "n", "in": 64, "out": 1, "hash_ids": [1]}
    path.write_text(json.dumps({"id": "s", "block_size": 64, "requests": [{**usual, **each} for each in requests]}))
    return make_trace("weka", {"path": path}, 0)


def test_an_overlapping_request_begins_a_chain_of_its_own(tmp_path: Path) -> None:
    """The second begins while the first is answered and waits for nothing; the third waits for both."""
    steps = ({"t": 0, "api_time": 5}, {"t": 1, "api_time": 2}, {"t": 6, "api_time": 1})
    main, beside = replayed(tmp_path / "w.json", *steps).sessions
    assert [turn.job.waits for turn in main.turns] == [None, "1:0"] and main.turns[1].think_s == 1
    assert [(turn.job.waits, turn.think_s) for turn in beside.turns] == [("begin", 1)]


def test_jobs_stay_whole_in_files_shards_and_thinned_traces(tmp_path: Path) -> None:
    one = made(tmp_path, "weka")
    many = merge([loop(one, 7, 1.0), made(tmp_path, "tracelab"), Trace.from_turns([typed_turn()])])
    for suffix in ("jsonl", "parquet"):
        save_trace(many, tmp_path / f"t.{suffix}")
        assert load_trace(tmp_path / f"t.{suffix}") == many
    assert join(shard(many, 3)) == many
    for part in (*shard(many, 3), thin(many, 0.5)):
        sizes = Counter(Counter(job_of(part.columns()).tolist()).values())
        assert set(sizes) <= {STEPS, 1}


def test_a_packed_file_and_a_folder_of_jobs_are_read(tmp_path: Path) -> None:
    plain = made(tmp_path, "tracelab").header
    packed = tmp_path / "t.jsonl.gz"
    packed.write_bytes(gzip.compress((tmp_path / "tracelab.jsonl").read_bytes()))
    assert make_trace("tracelab", {"path": packed, "network_ms": 0}, 0).header.hash == plain.hash
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("a.json", "b.json"):
        (folder / name).write_bytes(agent_files.write(tmp_path, "weka").read_bytes())
    assert len(make_trace("weka", {"path": folder, "rate": 1.0}, 0)) == 2 * STEPS


def test_a_model_call_within_a_model_call_counts_once(tmp_path: Path) -> None:
    """As where a framework and the library below it both write spans."""
    path = agent_files.write(tmp_path, "otel")
    outer = next(line for line in path.read_text().splitlines() if '"spanId": "main0"' in line)
    inner = outer.replace('"spanId": "main0"', '"spanId": "x"')
    inner = inner.replace('"parentSpanId": "1"', '"parentSpanId": "main0"')
    path.write_text(f"{path.read_text()}{inner}\n")
    trace = make_trace("otel", {"path": path}, 0)
    assert len(trace) == STEPS and any(note.startswith("1 calls of a model within") for note in trace.header.notes)


@pytest.mark.parametrize("text", ["{text}", "[{text}]", "[\n{text}\n]", "{pretty}"])
def test_a_document_may_be_one_object_or_a_list(text: str, tmp_path: Path) -> None:
    job = agent_files.weka()[0]
    path = tmp_path / "w.json"
    path.write_text(text.replace("{text}", json.dumps(job)).replace("{pretty}", json.dumps(job, indent=2)))
    assert len(make_trace("weka", {"path": path}, 0)) == STEPS


@pytest.mark.parametrize("text", ["{", "", "\n", "nothing", '{"id": "a"}\n{', "[1]"])
def test_a_file_that_is_no_json_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"is empty|is not JSON|not a JSON object|is missing"):
        make_trace("weka", {"path": path}, 0)


@pytest.mark.parametrize(
    ("name", "old", "new", "sentence"),
    [
        ("tracelab", '"prefix_tokens": 600', '"prefix_tokens": 6000', "line 1: prefix_tokens is 6000, not at most"),
        ("tracelab", '"output_tokens": 100', '"output_tokens": "many"', "output_tokens is 'many', not a number"),
        ("tracelab", "2026-06-01T05:40:00Z", "yesterday", "timing_events[0]: timestamp is 'yesterday', not a date"),
        ("tracelab", '"session_id"', '"session"', "line 1: session_id is missing; text"),
        ("weka", '"in": 1600', '"in": -1', "requests[3]: in is -1, not a number of 0 or more"),
        ("weka", '"block_size": 64', '"block_size": 0', "block_size is 0, not 1 or more"),
        ("weka", '"type": "s"', '"type": "x"', "requests[0]: type is 'x', not n, s or subagent"),
        ("weka", '"hash_ids": [1, 2', '"hash_ids": ["one", 2', "requests[0]: hash_ids is ['one', 2"),
        ("otel", '"endTimeUnixNano": "1', '"endTimeUnixNano": "-1', "spans[0]: endTimeUnixNano is '-1"),
        ("otel", "resourceSpans", "spans", "has no spans in resourceSpans; give OTLP traces in JSON."),
    ],
)
def test_a_wrong_field_is_named_with_its_place(name: str, old: str, new: str, sentence: str, tmp_path: Path) -> None:
    path = agent_files.write(tmp_path, name)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with refused(sentence):
        make_trace(name, {"path": path}, 0)


def test_jobs_with_a_fault_are_left_out_on_request(tmp_path: Path) -> None:
    path, good = tmp_path / "w.jsonl", json.dumps(agent_files.weka()[0])
    path.write_text(f"{good}\n{good.replace('64', '0')}\n")
    trace = make_trace("weka", {"path": path, "skip_bad": True}, 0)
    assert len(trace) == STEPS and "1 jobs left out: with a fault" in trace.header.notes
    with refused("no job is left (1 with more than 1000 tokens at once; 1 with a fault)"):
        make_trace("weka", {"path": path, "skip_bad": True, "max_context": 1000}, 0)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"session": 0, "waits": "begin"}, "session 0 turn 0: waits is begin; needs a session before it"),
        ({"waits": "0"}, "session 1 turn 0: waits is 0; must be begin, or SESSIONS_ON:TURN"),
        ({"waits": "-1:7"}, "session 1 turn 0: waits is -1:7; must name turns of the same job"),
        ({"waits": "0:0"}, "session 1 turn 0: waits is 0:0; the turn would wait for itself"),
        ({"waits": "-1:0", "think_s": None}, "session 1 turn 0: think_s is None; a session that is called needs it"),
        ({"waits": "-1:0", "arrival_s": 1.0}, "session 1 turn 0: arrival_s is 1.0; must be that of the job"),
        ({"waits": "-1:0", "backlog": 2}, "a job of several sessions is of no backlog"),
        ({"prefix": 1}, "prefix is 1.0; needs history_tokens, its length"),
        ({"waits": "-1:0", "recorded_s": 1.0}, "recorded_s is 1.0; belongs to the begin of a job"),
    ],
)
def test_wrong_columns_of_jobs_are_refused(changes: dict, sentence: str) -> None:
    turn = typed_turn(**{"session": 1, "think_s": 1.0, **changes})
    with refused(sentence):
        Trace.from_turns([typed_turn(), turn] if turn.session else [turn])


CHAT = {"gen_ai.operation.name": "chat"}
GENERATION = "langfuse.observation.type"
TRACERS: dict[str, dict[str, Any]] = {
    "OpenTelemetry": CHAT | {
        "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 20, "gen_ai.usage.cache_read.input_tokens": 80,
    },
    "OpenTelemetry 1.36": CHAT | {"gen_ai.usage.prompt_tokens": 100, "gen_ai.usage.completion_tokens": 20},
    "OpenInference": {
        "openinference.span.kind": "LLM", "llm.token_count.prompt": 100, "llm.token_count.completion": 20,
        "llm.token_count.prompt_details.cache_read": 80,
    },
    "Traceloop": {"llm.request.type": "chat", "llm.usage.prompt_tokens": 100, "llm.usage.completion_tokens": 20},
    "Claude Code": {"span.type": "llm_request", "input_tokens": 20, "output_tokens": 20, "cache_read_tokens": 80},
}  # fmt: skip
LANGFUSE: dict[str, dict[str, Any]] = {
    "own": {"input": 20, "output": 20, "input_cached_tokens": 80},
    "OpenAI": {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 80}},
    "responses": {"input_tokens": 100, "output_tokens": 20, "input_tokens_details": {"cached_tokens": 80}},
    "LangChain": {"input": 15, "output": 20, "input_cache_read": 80, "input_cache_creation": 5, "total": 120},
    "Anthropic": {
        "input_tokens": 15, "output_tokens": 20, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 5,
    },
}  # fmt: skip
for client, usage in LANGFUSE.items():
    said = {GENERATION: "generation", "langfuse.observation.usage_details": json.dumps(usage)}
    TRACERS[f"Langfuse, {client}"] = said


def spans(path: Path, *attributes: dict[str, Any]) -> Path:
    made = [agent_files.span(f"{at}", "", at, at + 1, said) for at, said in enumerate(attributes)]
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": made}]}]}))
    return path


@pytest.mark.parametrize("tracer", TRACERS)
def test_names_of_other_tracers_are_read(tracer: str, tmp_path: Path) -> None:
    other = {"openinference.span.kind": "TOOL", GENERATION: "tool", "span.type": "tool"}
    columns = make_trace("otel", {"path": spans(tmp_path / "s.json", TRACERS[tracer], other)}, 0).columns()
    cached = 80 if "80" in str(TRACERS[tracer]) else 0
    found = [columns[f"{name}_tokens"].tolist() for name in ("history", "input", "output")]
    assert found == [[cached], [100 - cached], [20]]


def test_spans_without_calls_name_what_was_looked_for_and_found(tmp_path: Path) -> None:
    path = spans(tmp_path / "s.json", {"my.tokens": 4}, {"my.tokens": 5, "gen_ai.operation.name": "chat"})
    with pytest.raises(
        UserError, match=r"none of 2 spans is a call .* gen_ai.usage.input_tokens or .* my.tokens \(2\)"
    ):
        make_trace("otel", {"path": path}, 0)
