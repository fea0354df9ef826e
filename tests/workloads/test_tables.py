import bz2
import csv
import gzip
import io
import json
import lzma
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import refused
from workloads.errors import UserError
from workloads.files.packed import read_packed
from workloads.registry import make_trace
from workloads.replays.layout import workload_of
from workloads.trace import Trace

Table = list[dict[str, Any]]
TABLE = {"time": [0.25, 0.5, 1.75, 2.0], "session": list("abab"), "input": [100, 80, 300, 70], "output": [20, 8, 9, 7]}


def as_csv(rows: Table, separator: str = ",") -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, [*rows[0]], delimiter=separator)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def as_parquet(rows: Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()


FORMATS: dict[str, Callable[[Table], bytes]] = {
    "csv": as_csv,
    "csv with semicolons": lambda rows: as_csv(rows, ";"),
    "csv with tabs": lambda rows: as_csv(rows, "\t"),
    "jsonl": lambda rows: "\n".join(map(json.dumps, rows)).encode(),
    "json": lambda rows: json.dumps(rows, indent=1).encode(),
    "object": lambda rows: json.dumps({"requests": rows}).encode(),
    "parquet": as_parquet,
}
PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "zst": lambda data: pa.compress(data, "zstd", asbytes=True),
    "bz2": bz2.compress,
    "xz": lzma.compress,
}
BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)
TIMES: dict[str, tuple[str, Callable[[float], Any], dict[str, Any]]] = {
    "s": ("t", lambda at: at, {}),
    "named ms": ("arrival_time_ms", lambda at: round(1000 * at), {}),
    "named us": ("arrivalTimeUs", lambda at: round(1e6 * at), {}),
    "set ms": ("timestamp", lambda at: round(1000 * at), {"unit": "ms"}),
    "since 1970": ("timestamp", lambda at: round(1e3 * (BEGAN.timestamp() + at)), {}),
    "zone": ("start_time", lambda at: (BEGAN + timedelta(seconds=at)).isoformat(), {}),
    "UTC": ("created_at", lambda at: f"{(BEGAN + timedelta(seconds=at)).replace(tzinfo=None)} UTC", {}),
}
NAMES = (
    ("input_tokens", "output_tokens"),
    ("prompt_len", "output_len"),
    ("promptTokens", "completionTokens"),
    ("Input Length", "Output Length"),
)


def table(path: Path, data: bytes, **params: Any) -> Trace:
    path.write_bytes(data)
    return make_trace(workload_of(path), {"path": str(path), "reply": "text", **params}, 0)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    form=st.sampled_from(sorted(FORMATS)),
    packing=st.sampled_from(sorted(PACKINGS)),
    unit=st.sampled_from(sorted(TIMES)),
    names=st.sampled_from(NAMES),
    order=st.permutations(range(4)),
)
def test_a_table_is_the_same_trace_in_any_format_packing_unit_names_and_order_of_columns(
    tmp_path: Path, form: str, packing: str, unit: str, names: tuple[str, str], order: list[int]
) -> None:
    time, write, params = TIMES[unit]
    columns = {
        time: [write(at) for at in TABLE["time"]],
        "session_id": TABLE["session"],
        names[0]: TABLE["input"],
        names[1]: TABLE["output"],
    }
    rows = [{name: columns[name][row] for name in (list(columns)[at] for at in order)} for row in range(4)]
    trace = table(tmp_path / "requests", PACKINGS[packing](FORMATS[form](rows)), **params)
    found = trace.columns()
    assert found["session"].tolist() == [0, 0, 1, 1]
    assert found["arrival_s"].tolist() == [0.0, 1.5, 0.25, 1.75]
    assert found["output_tokens"].tolist() == [20, 9, 8, 7]
    # One of two later prompts is longer than the request and reply before it: too few for prompts with their history.
    assert found["input_tokens"].tolist() == [100, 300, 80, 70]
    assert any(note.startswith("4 of 4 ") for note in trace.header.notes)


@pytest.mark.parametrize("packing", sorted(PACKINGS.keys() - {"plain"}))
def test_a_damaged_packed_file_is_refused(tmp_path: Path, packing: str) -> None:
    path = tmp_path / packing
    path.write_bytes(PACKINGS[packing](bytes(1000) + b"t,query,output\n")[:-9])
    with refused(f"{path} cannot be read: "):
        read_packed(path)


def test_sessions_of_whole_prompts_have_their_history_apart(tmp_path: Path) -> None:
    rows = [{"t": t, "session_id": "a", "input_tokens": n, "output_tokens": 10} for t, n in enumerate([50, 100, 200])]
    found = table(tmp_path / "t", as_csv(rows))
    assert found.columns()["history_tokens"].tolist() == [0, 60, 110]
    assert "prompts=whole: 2 of 2 later requests of a session are longer" in " ".join(found.header.notes)
    new = table(tmp_path / "t", as_csv(rows), prompts="new")
    assert new.columns()["input_tokens"].tolist() == [50, 100, 200]


def test_all_missing_columns_are_named_at_once(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("when_ms,prompt_chars,size\n0,5,6\n")
    wanted = f"rehearse replay {path} --column t=when_ms --column input=prompt_chars --column output=NAME. "
    with pytest.raises(UserError, match=re.escape(wanted)):
        make_trace("sessions", {"path": path}, 0)
    mapping = {"t": "when_ms", "input": "prompt_chars", "output": "size"}
    assert len(make_trace("sessions", {"path": path, "columns": mapping}, 0)) == 1
    with pytest.raises(UserError, match=r"has no column 'when' for t\. Did you mean 'when_ms'"):
        make_trace("sessions", {"path": path, "columns": {**mapping, "t": "when"}}, 0)


@pytest.mark.parametrize("times", [[0, 20, 40, 60, 80], [0, 20.5, 41, 60, 82]])
def test_times_that_may_be_s_or_ms_are_refused_without_a_unit(tmp_path: Path, times: list[float]) -> None:
    rows = [{"timestamp": t, "input_tokens": 9, "output_tokens": 9} for t in times]
    with pytest.raises(UserError, match=r"one request in 20.* (50|48\.78) requests/s .* --set unit=s or --set unit=ms"):
        table(tmp_path / "t", as_csv(rows))
    assert table(tmp_path / "t", as_csv(rows), unit="ms").columns()["arrival_s"].max() == times[-1] / 1000


def test_a_delay_follows_the_reply_before(tmp_path: Path) -> None:
    first = {"session_id": "a", "input_length": 300, "output_length": 40}
    later = {"session_id": "a", "input_length": 200, "output_length": 40, "delay": 1500}
    other = {"session_id": "b", "timestamp": 700, "input_length": 100, "output_length": 4}
    found = table(tmp_path / "m", FORMATS["jsonl"]([first | {"timestamp": 200}, later, other])).columns()
    assert found["arrival_s"][[0, 2]].tolist() == [0.0, 0.5] and found["think_s"][1] == 1.5
    assert found["input_tokens"].tolist() == [300, 200, 100]
    with pytest.raises(UserError, match="line 1, column 'timestamp': None is not a number"):
        table(tmp_path / "m", FORMATS["jsonl"]([first, later, other]))
    del other["timestamp"]
    made = table(tmp_path / "m", FORMATS["jsonl"]([first, later, other]))
    assert "2 sessions state no time: they begin at once" in made.header.notes


def test_a_token_is_four_characters_of_text_and_other_parts_are_noted(tmp_path: Path) -> None:
    user = [{"type": "text", "text": "x" * 40}, {"type": "image_url", "image_url": {"url": "u"}}]
    messages = [
        {"role": "system", "content": "z" * 20},
        {"role": "user", "content": user},
        {"role": "assistant", "content": "y" * 8},
    ]
    trace = table(tmp_path / "t", FORMATS["jsonl"]([{"timestamp": t, "messages": messages} for t in (0.1, 0.2)]))
    columns = trace.columns()
    assert columns["input_tokens"].tolist() == [(20 + 40) / 4] * 2
    assert columns["output_tokens"].tolist() == [8 / 4] * 2
    assert "2 parts of messages left out: image_url" in trace.header.notes


def test_stated_usage_counts_before_the_text(tmp_path: Path) -> None:
    rows = [{"t": t, "prompt": "x" * 40, "usage": {"completion_tokens": 3}} for t in (0.1, 0.2)]
    columns = table(tmp_path / "t", FORMATS["jsonl"](rows)).columns()
    assert columns["input_tokens"].tolist() == [40 / 4] * 2
    assert columns["output_tokens"].tolist() == [3, 3]


AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"
LAYOUTS: dict[str, tuple[str, list[str]]] = {
    # Public layout -> the workload, and lines of a file of it.
    "Azure 2023": ("sessions", [AZURE, "2023-11-16 18:17:03.9799600,4808,10"]),
    "Azure 2024": ("sessions", [AZURE, "2024-05-10 00:00:00.009930+00:00,2162,5", "2024-05-10 00:00:00.017335,23,6"]),
    "Mooncake": ("mooncake", [
        '{"timestamp": 27482, "input_length": 500, "output_length": 52, "hash_ids": [46]}']),
    "Alibaba Bailian": ("mooncake", [
        '{"chat_id": 1, "parent_chat_id": -1, "timestamp": 61.1, "input_length": 20, "output_length": 7, '
        '"type": "text", "turn": 1, "hash_ids": [1, 2]}']),
    "aiperf, sessions": ("mooncake", [
        '{"session_id": "a", "timestamp": 10, "input_length": 300, "output_length": 40}',
        '{"session_id": "a", "delay": 500, "input_length": 150, "output_length": 20}']),
    "vLLM, timed": ("sessions", ['{"arrival_time": 0.5, "prompt_len": 100, "output_len": 20}']),
    "Vidur": ("sessions", ["arrived_at,num_prefill_tokens,num_decode_tokens", "0.1,500,40", "0.3,20,1"]),
    "Splitwise": ("sessions", [
        "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size",
        "0,2,0,0.018,1,374,44"]),
    "LLMServingSim": ("sessions", ['{"input_toks": 128, "output_toks": 512, "arrival_time_ns": 1250000}']),
    "OpenAI usage log": ("sessions", [
        '{"created": 1772366400, "model": "m", "usage": {"prompt_tokens": 9, "completion_tokens": 4}}']),
    "OpenRouter activity": ("sessions", [
        "generation_id,created_at,cost_total,tokens_prompt,tokens_completion,tokens_reasoning",
        "g1,2026-03-01 12:00:00.5,0.1,900,50,0"]),
    "Helicone": ("sessions", [
        "request_id,request_created_at,response_created_at,prompt_tokens,completion_tokens,latency",
        "a,2026-03-01T12:00:00Z,2026-03-01T12:00:01Z,900,50,1000"]),
    "AWS Bedrock": ("sessions", [
        '{"timestamp": "2026-03-01T12:00:00Z", "modelId": "m", "input": {"inputTokenCount": 900}, '
        '"output": {"outputTokenCount": 50}}']),
    "LiteLLM spend log": ("sessions", [
        "request_id,startTime,endTime,prompt_tokens,completion_tokens,session_id",
        "a,2026-03-01T12:00:00.5Z,2026-03-01T12:00:01Z,90,12,s"]),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_public_layout_is_read_without_options(tmp_path: Path, name: str) -> None:
    workload, lines = LAYOUTS[name]
    path = tmp_path / "log"
    path.write_text("\n".join(lines))
    assert workload_of(path) == workload
    has_head = not lines[0].startswith("{")
    assert len(make_trace(workload, {"path": path, "reply": "text"}, 0)) == len(lines) - has_head


CHAT = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]


@pytest.mark.parametrize(
    ("data", "workload"),
    [
        (json.dumps([{"id": "a", "conversations": [{"from": "human", "value": "x"}]}]).encode(), "sharegpt"),
        (b'{"prompt": "Why?", "output_tokens": 4}', "sharegpt"),
        (as_parquet([{"timestamp": BEGAN, "conversation": CHAT}]), "sharegpt"),
        (b'{"resourceSpans": []}', "otel"),
        (b'{"schema_version": 1}\n{}', "file"),
        (
            b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Chat",
            "burstgpt",
        ),
    ],
)
def test_other_files_have_their_workload(tmp_path: Path, data: bytes, workload: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(data)
    assert workload_of(path) == workload
