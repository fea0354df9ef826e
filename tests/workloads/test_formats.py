import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.builders import refused
from tests.workloads.test_trace import TURN, turns_of_a_trace
from workloads.errors import UserError
from workloads.formats import BLOCK_TOKENS, FORMATS, jsonl, load_trace, save_trace
from workloads.registry import make_trace
from workloads.trace import SCHEMA_VERSION, Trace, Turn
from workloads.transforms.nominal import nominal

quick = settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


def typed(session: int, turn: int, arrival_s: float, new: int, out: int, history: int | None = None) -> Turn:
    return Turn(session, turn, arrival_s, "text", new, None, out, None, None, None, history, 0.005)


def read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@quick
@given(turns=turns_of_a_trace())
def test_json_lines_round_trip_is_exact(tmp_path: Path, turns: list[Turn]) -> None:
    trace = Trace.from_turns(turns)
    save_trace(trace, tmp_path / "t.jsonl")
    again = load_trace(tmp_path / "t.jsonl")
    assert again.header == trace.header
    assert again.sessions == trace.sessions


def test_a_trace_written_by_hand_needs_no_hash_and_no_empty_columns(tmp_path: Path) -> None:
    turn = {"session": 0, "turn": 0, "arrival_s": 1, "modality": "text", "input_tokens": 9}
    turn |= {"output_tokens": 5, "network_s": 0}
    lines = [json.dumps({"schema_version": 1}), "", json.dumps(turn), ""]
    (tmp_path / "t.jsonl").write_text("\r\n".join(lines), encoding="utf-8-sig")
    assert load_trace(tmp_path / "t.jsonl") == Trace.from_turns([typed(0, 0, 1.0, 9, 5).changed(network_s=0.0)])


@pytest.fixture(scope="module")
def good_lines(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    path = tmp_path_factory.mktemp("good") / "t.jsonl"
    save_trace(make_trace("voice", {"sessions": 4, "p": 0.5}, 1), path)
    return path.read_bytes().splitlines()


@settings(quick, max_examples=400)
@given(
    at=st.floats(0, 1, exclude_max=True),
    removed=st.integers(0, 300),
    put=st.binary(max_size=4) | st.sampled_from([b"null", b"1e999", b"[]", b'"', b"\n"]),
)
def test_a_damaged_file_is_refused_by_line_or_read_as_it_was(
    tmp_path: Path, good_lines: list[bytes], at: float, removed: int, put: bytes
) -> None:
    path, good = tmp_path / "t.jsonl", b"\n".join(good_lines)
    begin = int(at * len(good))
    path.write_bytes(good[:begin] + put + good[begin + removed :])
    try:
        trace = jsonl.read(path)
    except UserError as error:
        named = ("line ", "no turns", "is empty", "cannot be read: ")  # the last where it begins as if packed
        assert any(words in str(error) for words in named)
        assert "\n" not in str(error)
        return
    # The hash covers the turns; without it, all is taken as meant.
    if json.loads(path.read_bytes().splitlines()[0]).get("hash"):
        path.write_bytes(good)
        assert trace.sessions == jsonl.read(path).sessions


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"input_tokens": "9"}, 'line 3: input_tokens is "9", not a whole number; correct this line.'),
        ({"input_tokens": 9.0}, "line 3: input_tokens is 9.0, not a whole number; correct this line."),
        ({"turn": True}, "line 3: turn is true, not a whole number; correct this line."),
        ({"audio_s": [1]}, "line 3: audio_s is [1], not a number; correct this line."),
        ({"modality": 1}, "line 3: modality is 1, not text; correct this line."),
        ({"modality": "video"}, "line 3: session 1 turn 0: modality is video; must be audio or text."),
        ({"session": None}, "line 3: session is missing; give it a value."),
        ({"session": 2**31}, "line 3: session is 2147483648, out of range; correct this line."),
        ({"session": -(2**31)}, "line 3: session is -2147483648, out of range; correct this line."),
        ({"content": 2**53}, "line 3: content is 9007199254740992, out of range; correct this line."),
        ({"speech_s": 3}, "line 3: unknown column 'speech_s'."),
        ({"audio": 3}, "line 3: unknown column 'audio'. Did you mean 'audio_s'?"),
    ],
)
def test_a_wrong_value_is_named_with_its_line(tmp_path: Path, change: dict, sentence: str) -> None:
    path = tmp_path / "t.jsonl"
    save_trace(Trace.from_turns([TURN, TURN.changed(session=1)]), path)
    _, first, second = read_lines(path)
    path.write_text("\n".join(json.dumps(line) for line in ({"schema_version": 1}, first, second | change)))
    with refused(f"{path}, {sentence}"):
        load_trace(path)


@quick
@example(data=b"\xef\xbb\xbf")  # only a byte-order mark
@given(data=st.binary(min_size=1, max_size=200) | st.sampled_from([b"{}", b"[1]", b"null", b'"text"', b"1e400"]))
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "t.jsonl").write_bytes(data)
    with pytest.raises(UserError, match=r"t\.jsonl(, line 1: | cannot be read: )"):
        load_trace(tmp_path / "t.jsonl")


def test_the_largest_numbers_are_read(tmp_path: Path) -> None:
    trace = Trace.from_turns([TURN.changed(session=2**31 - 1, content=2**53 - 1)])
    save_trace(trace, tmp_path / "t.jsonl")
    assert load_trace(tmp_path / "t.jsonl") == trace


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        ("[]", "line 1: not a JSON object"),
        ('{"timestamp": 0, "input_length": 5}', 'line 1: not the header of a trace; put {"schema_version": 1} before'),
        (f'{{"schema_version": {SCHEMA_VERSION + 1}}}', f"line 1: schema version {SCHEMA_VERSION + 1} is newer than"),
        ('{"schema_version": "1"}', "line 1: parameter 'schema_version' should be a valid integer"),
        ('{"schema_version": 1, "sede": 3}', "line 1: unknown parameter 'sede'. Did you mean 'seed'?"),
        ('{"schema_version": 1, "hash": "ab"}', "line 1: turns are missing or changed since this hash"),
        ('{"schema_version": NaN}', "line 1: not valid JSON"),
    ],
)
def test_a_wrong_header_is_refused(tmp_path: Path, good_lines: list[bytes], header: str, sentence: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"\n".join([header.encode(), *good_lines[1:]]))
    with refused(f"{path}, {sentence}"):
        load_trace(path)


def test_mooncake_blocks_show_that_a_session_repeats_its_prefix(tmp_path: Path) -> None:
    # Turn 1 begins with the 700 + 400 tokens of turn 0; of its blocks the first is full in turn 0 already.
    turns = [typed(0, 0, 0.0, 700, 400), typed(0, 1, 60.0, 100, 10), typed(1, 0, 30.0, 1024, 1)]
    FORMATS["mooncake"](Trace.from_turns(turns), tmp_path / "m.jsonl")
    assert read_lines(tmp_path / "m.jsonl") == [
        {"timestamp": 0, "input_length": 700, "output_length": 400, "hash_ids": [0, 1]},
        {"timestamp": 30000, "input_length": 1024, "output_length": 1, "hash_ids": [2, 3]},
        {"timestamp": 60000, "input_length": 1200, "output_length": 10, "hash_ids": [0, 4, 5]},
    ]


def test_mooncake_begins_a_new_prefix_where_the_context_was_cut(tmp_path: Path) -> None:
    turns = [
        typed(0, 0, 0.0, 600, 100, 0),
        typed(0, 1, 9.0, 300, 10, 700),  # goes on after all 600 + 100 tokens
        typed(0, 2, 20.0, 900, 10, 0),  # cut: nothing of the session before
        typed(0, 3, 30.0, 5, 10, 910),  # goes on after 900 + 10 tokens
    ]
    FORMATS["mooncake"](Trace.from_turns(turns), tmp_path / "m.jsonl")
    lines = read_lines(tmp_path / "m.jsonl")
    assert [line["input_length"] for line in lines] == [600, 1000, 900, 915]
    assert [line["hash_ids"] for line in lines] == [[0, 1], [0, 2], [3, 4], [3, 5]]


def same_requests(ours: Trace, theirs: dict[str, np.ndarray], within_s: float) -> None:
    """Fail unless both have the same prompts and replies, at times that agree."""
    columns, timeline = ours.columns(), nominal(ours)
    order, back = np.argsort(timeline.start_s, kind="stable"), np.argsort(theirs["arrival_s"], kind="stable")
    starts = timeline.start_s[order]
    assert np.abs(theirs["arrival_s"][back] - (starts - starts[0])).max() <= within_s
    assert np.array_equal(theirs["output_tokens"][back], columns["output_tokens"][order])
    prompts = theirs["input_tokens"] + theirs["history_tokens"]
    assert np.array_equal(prompts[back], (timeline.context_tokens + columns["input_tokens"])[order])


def test_our_loader_reads_mooncake_back_and_finds_the_conversations(tmp_path: Path) -> None:
    trace = make_trace("voice", {"sessions": 12, "turns": 12, "reply_tokens": 400}, 0)
    FORMATS["mooncake"](trace, tmp_path / "m.jsonl")
    params = {"path": str(tmp_path / "m.jsonl"), "conversations": "likely"}
    theirs = make_trace("mooncake", params, 0).columns()
    same_requests(trace, theirs, 0.001 + 1e-9)
    # A turn is recognised by the full blocks of the turn before it; sessions have no block in common.
    columns = trace.columns()
    has_full_block = nominal(trace).context_tokens + columns["input_tokens"] >= BLOCK_TOKENS
    recognised = np.roll(has_full_block, 1) & (columns["turn"] > 0)
    assert np.sum(theirs["turn"] > 0) == np.sum(recognised) > 50


@pytest.mark.parametrize("layout", ["burstgpt", "burstgpt-sessions"])
@pytest.mark.parametrize("name", ["poisson", "voice"])
def test_our_loader_reads_burstgpt_back(tmp_path: Path, layout: str, name: str) -> None:
    trace = make_trace(name, {"p": 0.5}, 3)
    FORMATS[layout](trace, tmp_path / "b.csv")
    again = make_trace("burstgpt", {"path": str(tmp_path / "b.csv")}, 0)
    same_requests(trace, again.columns(), 1e-6)
    only_single_requests = {len(session.turns) for session in again.sessions} == {1}
    assert only_single_requests == (layout == "burstgpt" or name == "poisson")


@pytest.mark.parametrize(
    ("layout", "rows"),
    [
        ("burstgpt", [
            "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
            "5.25,GPT-4,10,20,30,Conversation log",
            "60,GPT-4,35,6,41,Conversation log",  # 10 + 20 tokens before, 5 new ones
        ]),
        ("burstgpt-sessions", [
            "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
            "5.25,7,,GPT-4,10,20,30,Conversation log",
            "60,7,,GPT-4,35,6,41,Conversation log",
        ]),
    ],
)  # fmt: skip
def test_burstgpt_is_written_with_the_published_columns(tmp_path: Path, layout: str, rows: list[str]) -> None:
    FORMATS[layout](Trace.from_turns([typed(7, 0, 5.25, 10, 20), typed(7, 1, 60.0, 5, 6)]), tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_text().splitlines() == rows


def test_the_workload_file_plays_a_file_as_it_stands(tmp_path: Path) -> None:
    trace = make_trace("voice", {"sessions": 5, "p": 0.4}, 9)
    for name in ("t.parquet", "t.jsonl"):
        save_trace(trace, tmp_path / name)
        assert make_trace("file", {"path": str(tmp_path / name)}, 1) == trace
    with pytest.raises(UserError, match="unknown parameter 'p'"):
        make_trace("file", {"path": "t.parquet", "p": 0.5}, 0)
