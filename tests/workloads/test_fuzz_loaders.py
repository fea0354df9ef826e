"""Whatever a file holds, a loader gives a trace or refuses in one sentence, and counts every row that it leaves out."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import GONE, altered, places
from tests.workloads.agent_files import WRITERS
from tests.workloads.small_files import FILES
from workloads.errors import UserError
from workloads.files.documents_file import read_longbench, read_vcsum
from workloads.files.sharegpt_file import read_sharegpt
from workloads.files.streamingbench_file import read_streamingbench
from workloads.registry import make_trace
from workloads.trace import Trace

pytestmark = pytest.mark.slow("hundreds of damaged files")

SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large, HealthCheck.large_base_example]
fuzz = settings(max_examples=100, suppress_health_check=[*SLOW, HealthCheck.function_scoped_fixture])

ODD = [
    "", " ", "nan", "inf", "-inf", "-1", "1e300", "1e19", "0", "0.5", "True", "x", "é", "1_0", "0x1", "12.0",
    '"', "'", "\x00", "\u2028", ",",
]  # fmt: skip
cell = st.sampled_from(ODD) | st.integers(-5, 10**11).map(str) | st.floats().map(str) | st.text(max_size=6)
scalar = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=6)
scalar |= st.sampled_from(ODD)
json_value = st.recursive(
    scalar,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def or_refused(load: Callable[[], Any]) -> Any:
    """What `load` gives, or None when it refuses in one sentence; anything else fails the test."""
    try:
        return load()
    except UserError as error:
        assert "\n" not in str(error) and str(error).endswith((".", "?"))


def read_skipping(read: Callable[..., Any], path: Path) -> tuple[Any, list[str]]:
    """What `read` gives with bad rows skipped, and its notes; the same without skipping may only refuse."""
    notes: list[str] = []
    or_refused(lambda: read(path, [], False))
    return or_refused(lambda: read(path, notes, True)), notes


def trace_skipping(name: str, path: Path, **params: Any) -> Any:
    """The trace of a workload with bad rows skipped, or None; without skipping it may only refuse."""
    or_refused(lambda: make_trace(name, {"path": str(path), **params}, 0))
    return or_refused(lambda: make_trace(name, {"path": str(path), "skip_bad": True, **params}, 0))


def left_out(notes: list[str]) -> int:
    """Rows that notes count as left out."""
    words = ("skipped", "dropped", "left out")
    return sum(int(note.split(" ")[0]) for note in notes if any(word in note for word in words))


@st.composite
def damaged(draw: st.DrawFn, text: str) -> bytes:
    """A good file with bytes cut out, doubled or overwritten."""
    raw = bytearray((text * draw(st.integers(1, 3))).encode())
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw)))
        other = st.binary(max_size=4) | st.sampled_from([b"\n", b'"', b",", b"\r", b"{"])
        raw[at : at + draw(st.integers(0, 5))] = draw(other)
    return bytes(raw)


@settings(fuzz, max_examples=200)
@given(name=st.sampled_from(sorted(FILES)), data=st.data())
def test_a_damaged_file_is_read_or_refused(folder: Path, name: str, data: st.DataObject) -> None:
    file, text = FILES[name]
    (folder / file).write_bytes(data.draw(damaged(text) | st.binary(max_size=60)))
    trace_skipping(name, folder / file, **({"shape": "vcsum"} if name == "offline" else {}))


def read_jobs(workload: str, path: Path, _: list[str], skip_bad: bool) -> Trace:
    return make_trace(workload, {"path": path, "skip_bad": skip_bad}, 0)


MESSAGE = {"from": "human", "value": "q"}
DOCUMENTS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "v3": (read_sharegpt, [{"conversations": [MESSAGE, {"from": "gpt", "value": "So."}]}]),
    "shareAI": (read_sharegpt, [{"conversation": [{"human": "q", "assistant": "So."}]}]),
    "chat": (read_sharegpt, [{"messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]}]}]),
    "custom": (read_sharegpt, [{"prompt": "q", "output_tokens": 3}]),
    "streamingbench": (read_streamingbench, json.loads(FILES["streamingbench"][1])),
    "vcsum": (read_vcsum, [json.loads(FILES["offline"][1])] * 2),
    "longbench": (read_longbench, [{"context": "x", "input": "", "answers": ["y"]}]),
    **{name: (partial(read_jobs, name), write()) for name, write in WRITERS.items()},
}


@settings(fuzz, max_examples=500)
@given(name=st.sampled_from(sorted(DOCUMENTS)), data=st.data())
def test_a_document_with_any_value_at_any_place_is_read_or_refused(
    folder: Path, name: str, data: st.DataObject
) -> None:
    read, document = DOCUMENTS[name]
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(list(places(document)) or [None]))
        document = altered(document, place, data.draw(json_value | st.just(GONE))) if place else document
    (folder / "d.json").write_text(json.dumps(document))
    read_skipping(read, folder / "d.json")


COLUMNS = {
    "burstgpt": ["Timestamp", "Session ID", "Request tokens", "Response tokens"],
    "sessions": ["t", "session_id", "q_tok", "h_tok", "input_length", "output_length"],
    "azure": ["TIMESTAMP", "ContextTokens", "GeneratedTokens"],
}
plain = cell.filter(lambda text: not set(text) & set(',"\r\n\x00\u2028'))
"""Cells that neither end nor begin others."""


@fuzz
@given(name=st.sampled_from(sorted(COLUMNS)), data=st.data())
def test_every_row_of_a_csv_file_is_a_turn_or_counted(folder: Path, name: str, data: st.DataObject) -> None:
    width = len(COLUMNS[name])
    good = FILES[name][1].splitlines()[1].split(",")[0]
    number = st.integers(0, 5000).map(str) | st.just(good)
    row = st.lists(number | plain, min_size=width, max_size=width) | st.lists(plain, max_size=width + 2)
    rows = [",".join(cells) for cells in data.draw(st.lists(row, min_size=1, max_size=8))]
    path = folder / "rows.csv"
    path.write_text("\n".join([",".join(COLUMNS[name]), *rows]) + "\n", "utf-8")
    trace = trace_skipping(name, path)
    if trace is not None:
        not_blank = [line for line in rows if line.replace(",", "").strip()]
        assert len(trace) + left_out(trace.header.notes) == len(not_blank)


@fuzz
@given(data=st.data())
def test_every_line_of_a_json_file_is_a_turn_or_counted(folder: Path, data: st.DataObject) -> None:
    good = json.loads(FILES["mooncake"][1])
    changed = st.dictionaries(st.sampled_from(sorted(good)), json_value, max_size=2).map(lambda new: good | new)
    values = data.draw(st.lists(changed | json_value | st.just(good), min_size=1, max_size=6))
    path = folder / "rows.jsonl"
    path.write_text("\n".join([*(json.dumps(value) for value in values), ""]))
    trace = trace_skipping("mooncake", path)
    if trace is not None and not isinstance(values[0], list):
        assert len(trace) + left_out(trace.header.notes) == len(values)


@fuzz
@given(data=st.data())
def test_every_message_is_half_an_exchange_or_counted(folder: Path, data: st.DataObject) -> None:
    role = st.sampled_from(["human", "gpt", "system", "user", "bot", "GPT"])
    talks = data.draw(st.lists(st.lists(st.tuples(role, st.text(max_size=5)), max_size=6), min_size=1, max_size=4))
    talks = [[{"from": who, "value": text} for who, text in talk] for talk in talks]
    (folder / "talk.json").write_text(json.dumps([{"conversations": talk} for talk in talks]))
    found, notes = read_skipping(read_sharegpt, folder / "talk.json")
    assert found is None or 2 * len(found.turn) + left_out(notes) == sum(map(len, talks))
