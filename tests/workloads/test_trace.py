import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import builders
from tests.builders import refused
from tests.golden.pinned import check_trace
from workloads.columns.classes import in_order
from workloads.errors import UserError
from workloads.formats import save_trace
from workloads.registry import make_trace
from workloads.trace import CONTENTS, HEADER_KEY, LATER, SCHEMA, SCHEMA_VERSION, UNWRITTEN, Trace, Turn

TURN = builders.turn(input_tokens=39, audio_s=3.0, reply_audio_s=17.0)

seconds = st.integers(0, 10**10).map(lambda us: us / 1e6)
positive_seconds = st.integers(1, 10**9).map(lambda us: us / 1e6)
tokens = st.integers(1, 10**6)
labels = st.fixed_dictionaries(
    {
        "request_class": st.none() | st.sampled_from(["online", "batch", "a-1_b"]),
        "priority": st.none() | st.integers(-1000, 1000),
        "ttft_deadline_s": st.none() | positive_seconds,
        "tbt_deadline_s": st.none() | positive_seconds,
        "tenant": st.none() | st.sampled_from(["a", "B-2_c"]),
        "predicted_tokens": st.none() | tokens,
    }
)


@st.composite
def turns_of_a_trace(draw: st.DrawFn) -> list[Turn]:
    turns, classes = [], draw(st.just(st.just({})) | st.just(labels))
    backlogs = draw(st.just(st.none()) | st.just(st.none() | st.integers(1, 9)))
    for session in draw(st.lists(st.integers(0, 1000), min_size=1, max_size=5, unique=True)):
        network_s, arrival_s, backlog = draw(seconds), draw(seconds), draw(backlogs)
        for turn in range(draw(st.integers(1, 4))):
            scheduled = turn == 0 or draw(st.booleans())
            arrival_s += draw(seconds) if scheduled else 0
            audio_s = draw(st.none() | positive_seconds)
            reply_audio_s = draw(st.none() | positive_seconds)
            turns.append(
                Turn.of(
                    session=session,
                    turn=turn,
                    arrival_s=round(arrival_s, 6) if scheduled else None,
                    modality="audio" if audio_s else "text",
                    input_tokens=draw(tokens),
                    audio_s=audio_s,
                    output_tokens=draw(tokens),
                    reply_audio_s=reply_audio_s,
                    think_s=None if scheduled else draw(seconds),
                    barge_in_after_s=draw(st.none() | seconds) if reply_audio_s else None,
                    history_tokens=draw(st.none() | st.integers(0, 10**6)),
                    network_s=network_s,
                    visual_tokens=draw(st.none() | st.just(1)),
                    content=draw(st.none() | st.integers(0, CONTENTS - 1)),
                    **draw(classes),
                    backlog=backlog,
                )
            )
    return turns


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(turns=turns_of_a_trace(), shuffle=st.randoms())
def test_a_trace_survives_its_file_and_any_order_of_its_turns(folder: Path, turns: list[Turn], shuffle) -> None:
    trace = Trace.from_turns(turns)
    assert {turn for session in trace.sessions for turn in session.turns} == set(turns)
    trace.save(folder / "t.parquet")
    assert Trace.load(folder / "t.parquet") == trace
    shuffle.shuffle(turns)
    assert Trace.from_turns(turns) == trace


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(turns=turns_of_a_trace(), data=st.data())
def test_one_more_token_in_any_turn_changes_the_hash(turns: list[Turn], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(turns) - 1))
    field = data.draw(st.sampled_from(["input_tokens", "output_tokens"]))
    changed = replace(turns[at], **{field: getattr(turns[at], field) + 1})
    assert Trace.from_turns([*turns[:at], changed, *turns[at + 1 :]]).header.hash != Trace.from_turns(turns).header.hash


def test_a_missing_history_and_one_of_zero_tokens_have_different_hashes() -> None:
    hashes = {Trace.from_turns([TURN.changed(history_tokens=h)]).header.hash for h in (None, 0, 1)}
    assert len(hashes) == 3


PAUSE = {"pause_after_s": 0.1, "pause_s": 0.2}
NOISE = {"event": "noise", "event_after_s": 1.0, "event_s": 1.0}


@pytest.mark.parametrize("name", LATER)
def test_a_file_without_a_later_column_is_the_trace_that_leaves_it_empty(tmp_path: Path, name: str) -> None:
    path, trace = tmp_path / "t.parquet", Trace.from_turns([TURN])
    trace.save(path)
    table = pq.read_table(path)
    pq.write_table(table.drop_columns([name] if name in table.column_names else []), path)
    assert Trace.load(path) == trace


@pytest.mark.parametrize("name", LATER)
def test_a_value_in_a_later_column_changes_the_hash(name: str) -> None:
    value = {"request_class": "a", "waits": "begin"}.get(name, 1)
    change = PAUSE if name in PAUSE else NOISE if name in NOISE else {name: value}
    other = TURN.changed(session=1, think_s=0.0, history_tokens=1)
    hashes = {Trace.from_turns([TURN, each]).header.hash for each in (other, other.changed(**change))}
    assert len(hashes) == 2


@pytest.mark.parametrize(
    ("name", "params", "sha256"),
    [
        ("voice", {"sessions": 20, "p": 0.5}, "2899bbae32aa5488"),
        ("poisson", {"modality": "text", "reply": "text"}, "1e5685a0d6eb27b2"),
        ("streamingbench", {"sessions": 5}, "0294296438781097"),
        ("metronome", {}, "42073da5cd1b100c"),
    ],
)
def test_a_trace_without_later_columns_keeps_its_hash_and_its_bytes(
    tmp_path: Path, name: str, params: dict, sha256: str
) -> None:
    trace = make_trace(name, params, 7)
    check_trace(f"trace_{name}_seed7", trace)
    save_trace(trace, tmp_path / "t.jsonl")
    assert hashlib.sha256((tmp_path / "t.jsonl").read_bytes()).hexdigest().startswith(sha256)
    trace.save(tmp_path / "t.parquet")  # bytes differ between versions of Parquet's writer; columns do not
    assert pq.read_schema(tmp_path / "t.parquet").names == [n for n in SCHEMA.names if n not in UNWRITTEN]


def test_the_class_with_the_lowest_priority_comes_first_and_ties_go_by_name() -> None:
    classes = [("batch", 10), (None, None), ("online", None)]  # no class is "default", no priority is 0
    turns = [TURN.changed(session=i, request_class=name, priority=number) for i, (name, number) in enumerate(classes)]
    members = in_order(Trace.from_turns(turns).columns())
    assert [(name, rows.tolist()) for name, rows in members.items()] == [
        ("default", [False, True, False]),
        ("online", [False, False, True]),
        ("batch", [True, False, False]),
    ]


def test_columns_cannot_be_changed_behind_the_hash() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Trace.from_turns([TURN]).columns()["input_tokens"][0] = 1


@given(st.lists(st.integers(1, 3), min_size=1, max_size=200))
def test_sessions_made_one_by_one_are_those_of_the_trace(turns_each: list[int]) -> None:
    turns = [
        TURN.changed(session=id, turn=turn, arrival_s=float(id), content=id or None)
        for id, turns in enumerate(turns_each)
        for turn in range(turns)
    ]
    trace = Trace.from_turns(turns)
    one_by_one = tuple(trace.each_session())
    assert one_by_one == trace.sessions
    assert [turn for session in one_by_one for turn in session.turns] == turns


def test_sessions_come_in_the_order_of_their_first_arrival() -> None:
    starts = {5: 2.0, 3: 1.0, 9: 1.0, 1: 3.0}
    trace = Trace.from_turns([TURN.changed(session=id, arrival_s=t) for id, t in starts.items()])
    assert [session.id for session in trace.sessions] == [3, 9, 5, 1]


def test_times_are_kept_to_the_microsecond() -> None:
    trace = Trace.from_turns([TURN.changed(arrival_s=1 / 3)])
    assert trace.sessions[0].turns[0].arrival_s == 0.333333


def test_the_header_of_a_file_is_json_with_the_origin_of_the_trace(tmp_path: Path) -> None:
    trace = make_trace("voice", {"sessions": 3, "p": 0.5}, 11)
    trace.save(tmp_path / "t.parquet")
    header = json.loads(pq.read_schema(tmp_path / "t.parquet").metadata[HEADER_KEY])
    assert header == asdict(trace.header)
    assert (header["generator"], header["params"]["p"], header["seed"]) == ("voice", 0.5, 11)
    assert "barge_in" in header["streams"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"session": -1}, "session -1 turn 0: session is -1; must be 0 or more"),
        ({"turn": 1, "think_s": 1.0}, "turn is 1; turns must count 0, 1, 2"),
        ({"arrival_s": None}, "arrival_s is None; the first turn of a session needs an arrival time"),
        ({"arrival_s": -0.5}, "arrival_s is -0.5; must be finite and not negative"),
        ({"arrival_s": float("inf")}, "arrival_s is inf; must be finite and not negative"),
        ({"modality": "video"}, "modality is video; must be audio or text"),
        ({"input_tokens": 0}, "input_tokens is 0; must be at least 1"),
        ({"output_tokens": 0}, "output_tokens is 0; must be at least 1"),
        ({"audio_s": None}, "audio_s is None; a spoken turn must last longer than 0 s"),
        ({"modality": "text"}, "audio_s is 3.0; a typed turn has no audio"),
        ({"reply_audio_s": 0.0}, "reply_audio_s is 0.0; must be more than 0 s"),
        ({"reply_audio_s": None, "barge_in_after_s": 1.0}, "barge_in_after_s is 1.0; needs a spoken reply"),
        ({"visual_tokens": 40}, "visual_tokens is 40.0; must be part of the input tokens"),  # which are 39
        ({"content": 2**53}, "content is 9007199254740992.0; must be below 2**53"),
        ({"network_s": float("nan")}, "network_s is None; must be given"),
        ({"request_class": "On line"}, "request_class is On line; must be a-z, 0-9, _ and -, a letter first"),
        ({"request_class": "a" * 33}, "at most 32 characters"),
        ({"priority": 1001}, "priority is 1001.0; must be a whole number from -1000 to 1000"),
        ({"priority": -1001}, "priority is -1001.0; must be a whole number"),
        ({"priority": 0.5}, "priority is 0.5; must be a whole number"),
        ({"ttft_deadline_s": 0.0}, "ttft_deadline_s is 0.0; must be more than 0 s"),
        ({"tbt_deadline_s": 0.0}, "tbt_deadline_s is 0.0; must be more than 0 s"),
        ({"backlog": 0}, "backlog is 0.0; must be a whole number above 0"),
        ({"pause_s": 0.5}, "pause_after_s is None; goes with pause_s"),
        ({"pause_after_s": 2.5, "pause_s": 0.5}, "pause_s is 0.5; must end before the turn does"),  # which lasts 3 s
        (NOISE | {"event": "cough"}, "event is cough; must be one of interruption"),
        (NOISE | {"event_s": None}, "event_s is None; goes with event"),
        ({"event_after_s": 1.0}, "event_after_s is 1.0; goes with event"),
        (NOISE | {"reply_audio_s": None}, "needs a spoken reply"),
        ({"tenant": "two words"}, "tenant is two words; must be letters, digits, _ and -, at most 64 characters"),
        ({"tenant": "a" * 65}, "at most 64 characters"),
        ({"predicted_tokens": 0}, "predicted_tokens is 0.0; must be a whole number above 0"),
    ],
)
def test_a_turn_that_breaks_the_schema_is_refused(change: dict, sentence: str) -> None:
    with refused(sentence):
        Trace.from_turns([TURN.changed(**change)])


@pytest.mark.parametrize(
    "change",
    [
        {"visual_tokens": 39},  # all input tokens
        {"request_class": "a" * 32, "priority": 1000, "tenant": "a" * 64},
        {"priority": -1000, "predicted_tokens": 1, "backlog": 1},
        {"pause_after_s": 2.5, "pause_s": 0.499, **NOISE},  # the turn lasts 3 s
    ],
)
def test_values_at_the_limits_of_the_schema_survive_a_file(tmp_path: Path, change: dict) -> None:
    Trace.from_turns([TURN.changed(**change)]).save(tmp_path / "t.parquet")
    assert Trace.load(tmp_path / "t.parquet").sessions[0].turns == (TURN.changed(**change),)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"turn": 2}, "session 0 turn 2: turn is 2; turns must count"),
        ({"think_s": None}, "session 0 turn 1: think_s is None; a turn needs an arrival or a think time"),
        ({"arrival_s": 3.0}, "session 0 turn 1: arrival_s is 3.0; must not lie before the previous turn"),
        ({"network_s": 0.1}, "session 0 turn 1: network_s is 0.1; must not change"),
        ({"backlog": 2}, "session 0 turn 1: backlog is 2.0; must not change within a session"),
    ],
)
def test_a_later_turn_that_breaks_the_schema_is_refused(change: dict, sentence: str) -> None:
    first, second = TURN.changed(arrival_s=4.0), TURN.changed(turn=1, arrival_s=None, think_s=1.0)
    Trace.from_turns([first, second])
    with refused(sentence):
        Trace.from_turns([first, second.changed(**change)])


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "does not exist"), (b"", "is empty"), (b"session,turn\n0,0\n", "is not a Parquet file")],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "t.parquet"
    if content is not None:
        path.write_bytes(content)
    with refused(f"{path} {said}"):
        Trace.load(path)


def headed(table: pa.Table, **fields: Any) -> pa.Table:
    header = json.loads(table.schema.metadata[HEADER_KEY]) | fields
    return table.replace_schema_metadata({HEADER_KEY: json.dumps(header)})


def prompts(tokens: Any, dtype: pa.DataType | None = None) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.set_column(4, "input_tokens", pa.array([tokens], dtype))


NEWER = SCHEMA_VERSION + 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: table.replace_schema_metadata(None), "has no trace header"),
        (lambda table: table.replace_schema_metadata({HEADER_KEY: b"\xff{"}), "damaged trace header"),
        (lambda table: headed(table, unknown_field=1), "damaged trace header"),
        (lambda table: headed(table, params=[1]), "damaged trace header"),
        (lambda table: headed(table, seed=1.5), "damaged trace header"),
        (lambda table: headed(table, streams="x"), "damaged trace header"),
        (lambda table: headed(table, notes=[1]), "damaged trace header"),
        (lambda table: headed(table, schema_version=NEWER, new=1), f"version {NEWER}, newer than {SCHEMA_VERSION}"),
        (lambda table: table.drop_columns(["think_s"]), "no column 'think_s' (found: session, turn, arrival_s"),
        (lambda table: table.slice(0, 0), "the trace is empty"),
        (prompts(None, pa.int64()), "column 'input_tokens' has empty values"),
        (prompts("many"), "a column has the wrong type"),
        (prompts(0), "input_tokens is 0; must be at least 1"),
        (prompts(40), "do not match the hash"),  # of 39 tokens
    ],
)
def test_a_changed_file_is_refused_by_its_fault(
    tmp_path: Path, change: Callable[[pa.Table], pa.Table], said: str
) -> None:
    path = tmp_path / "t.parquet"
    Trace.from_turns([TURN]).save(path)
    pq.write_table(change(pq.read_table(path)), path)
    with refused(str(path), said):
        Trace.load(path)


@given(
    changes=st.lists(st.tuples(st.integers(9, 10**6), st.sampled_from([0, 0x7F, 0x80, 0xFF])), min_size=1, max_size=4)
)
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_with_altered_metadata_is_read_or_refused(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    """The end of a Parquet file holds its schema and metadata, also text that pyarrow reads as UTF-8."""
    path = tmp_path / "trace.parquet"
    if not path.exists():
        make_trace("voice", {"sessions": 2}, 0).save(path)
    content = bytearray(path.read_bytes())
    end = int.from_bytes(content[-8:-4], "little") + 8
    for place, byte in changes:
        content[-(9 + place % (end - 8))] = byte
    (tmp_path / "altered.parquet").write_bytes(content)
    try:
        Trace.load(tmp_path / "altered.parquet")
    except UserError as error:
        assert str(error).endswith(".")
