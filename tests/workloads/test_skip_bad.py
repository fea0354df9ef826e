"""`skip_bad` goes on past bad rows and says how many of which kind there were; without it the first one stops."""

from collections.abc import Callable
from pathlib import Path

import pytest

from workloads.errors import UserError
from workloads.registry import make_trace

HEADER = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
GOOD = "1,ChatGPT,10,20,30,Conversation log\n"

Write = Callable[..., Path]


def skipped(path: Path, name: str = "burstgpt") -> list[str]:
    return make_trace(name, {"path": str(path), "skip_bad": True}, 0).header.notes


def test_every_kind_is_counted(csv_file: Write) -> None:
    bad = [
        "x,C,1,1,2,l",
        "nan,C,1,1,2,l",
        "2,C,-1,1,2,l",
        "2,C,1.5,1,2,l",
        "2,C,1,99999999,2,l",
        "2,C,1,1,2,l,9",
        "3,C,0,0,0,l",
    ]
    notes = skipped(csv_file(HEADER + GOOD + "\n".join(bad) + "\n\n" + GOOD))
    assert notes == [
        "1 of 9 rows skipped: 'Request tokens' is negative",
        "1 of 9 rows skipped: 'Request tokens' is not a whole number",
        "1 of 9 rows skipped: 'Response tokens' is too large for a number of tokens",
        "2 of 9 rows skipped: 'Timestamp' is not a number",
        "1 of 9 rows skipped: more fields than names of columns",
        "1 of 3 rows dropped: zero request or response tokens",
    ]


@pytest.mark.parametrize("row", ["1,C,1,1,2,l,9", "1,C,1,1,2,l,9,9"])
def test_a_first_row_that_is_too_long_is_not_cut_to_fit(csv_file: Write, row: str) -> None:
    path = csv_file(HEADER + row + "\n" + GOOD + row + "\n")
    with pytest.raises(UserError, match=r"row 2: \d fields where 6 belong; correct this row"):
        make_trace("burstgpt", {"path": str(path)}, 0)
    assert skipped(path) == ["2 of 3 rows skipped: more fields than names of columns"]


def test_two_layouts_in_one_file(csv_file: Write) -> None:
    eight = "7,abc,43,GPT-4,906,446,1352,Conversation log\n"
    assert skipped(csv_file(HEADER + GOOD + eight * 3)) == [
        "3 of 4 rows skipped: more fields than names of columns"
    ]
    assert skipped(csv_file(HEADER + GOOD + HEADER + GOOD)) == [
        "1 of 3 rows skipped: 'Timestamp' is not a number"
    ]


def test_row_numbers_stay_those_of_the_file(csv_file: Write) -> None:
    path = csv_file(HEADER + GOOD + "\n" + GOOD + "1,C,x,1,2,l\n")
    with pytest.raises(UserError, match="row 5, column 'Request tokens': 'x' is not a number"):
        make_trace("burstgpt", {"path": str(path)}, 0)


def test_nothing_left(csv_file: Write) -> None:
    path = csv_file(HEADER + "x,C,1,1,2,l\n" + "1,C,1,1,2,l,9\n")
    with pytest.raises(
        UserError, match=r"no good row is left \(1 of 2 rows skipped: 'Timestamp' is not a number; 1 of"
    ):
        skipped(path)


def test_json_lines(tmp_path: Path) -> None:
    good = '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}'
    lines = [
        good,
        "{",
        "[1]",
        good.replace("600", '"many"'),
        good.replace("[1, 2]", "[1, 2, 3]"),
        good.replace("[1, 2]", '["a"]'),
        good.replace('"output_length": 5, ', ""),
        "",
    ]
    path = tmp_path / "m.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"line 2: '\{' is not a JSON object; correct or remove this line"):
        make_trace("mooncake", {"path": str(path)}, 0)
    assert [note for note in skipped(path, "mooncake") if "skipped" in note] == [
        "1 of 7 lines skipped: 'hash_ids' has more blocks than the input has",
        "1 of 7 lines skipped: 'hash_ids' is not a list of whole numbers",
        "1 of 7 lines skipped: 'input_length' is not a number",
        "1 of 7 lines skipped: 'output_length' is not a number",
        "2 of 7 lines skipped: is not a JSON object",
    ]


def test_a_window_leaves_out_what_comes_before_and_after(csv_file: Write) -> None:
    rows = "".join(f"s{i % 3},{t},10,20\n" for i, t in enumerate([0, 1, 2, 50, 51, 52, 53, 90]))
    path = str(csv_file("session_id,t,query,output\n" + rows))
    trace = make_trace("sessions", {"path": path, "start_s": "busiest", "duration_s": 10}, 0)
    assert trace.columns()["arrival_s"].tolist() == [0, 3, 1, 2]
    assert trace.header.notes == [
        "busiest 10 s of the record: from 50.000000 s",
        "3 sessions began before the window: their earlier turns are left out",
    ]
