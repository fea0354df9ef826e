"""A mistake in a file is refused with its place, its value and the fix; `skip_bad` leaves the row out and counts it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from tests.builders import refused
from workloads.errors import CONTROL, UserError, nearest, printable, validate
from workloads.registry import WORKLOADS, make_trace

HEADER = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
GOOD = "1,ChatGPT,10,20,30,Conversation log\n"

Write = Callable[..., Path]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", " is empty; give a file with data in it."),
        ("\n\n", " has no header row; give a CSV file with column names."),
        (HEADER + "\n,,,,,\n", " has a header but no rows; give a file with at least one request."),
        ("a,b\n1,2\n", " has no column 'Timestamp'; rename one of its columns (a, b)."),
        (HEADER + "\n" + GOOD + "x,C,1,1,2,l\n", ", row 4, column 'Timestamp': 'x' is not a number; correct"),
        (HEADER + "nan,C,1,1,2,l\n", ", row 2, column 'Timestamp': 'nan' is not a number;"),
        (HEADER + "inf,C,1,1,2,l\n", ", row 2, column 'Timestamp': 'inf' is not finite; correct or remove"),
        (HEADER + "-1,C,1,1,2,l\n", ", row 2, column 'Timestamp': '-1' is negative; correct or remove"),
        (HEADER + "1,C,1,-5,2,l\n", ", row 2, column 'Response tokens': '-5' is negative;"),
        (HEADER + "1,C,1.5,1,2,l\n", ", row 2, column 'Request tokens': '1.5' is not a whole number;"),
        (HEADER + "1,C,1e30,1,2,l\n", ", row 2, column 'Request tokens': '1e30' is too large"),
        (HEADER + GOOD + "1,C\n", ", row 3, column 'Request tokens': '' is not a number;"),
        (HEADER + "1,C,1,1,2,l,9\n" + GOOD, ", row 2: 7 fields where 6 belong; correct this row."),
        (HEADER + GOOD + "1,C,1,1,2,l,9,9\n", ", row 3: 8 fields where 6 belong; correct this row."),
        (HEADER + '1,"C,1,1,2,l\n', " is not a readable CSV file ("),
        (HEADER + "1,C,0,0,0,l\n", ": every row has zero request or response tokens; give a file with"),
    ],
)
def test_a_fault_in_a_csv_file_is_named_with_its_row(csv_file: Write, text: str, sentence: str) -> None:
    path = csv_file(text)
    with refused(f"{path}{sentence}"):
        make_trace("burstgpt", {"path": str(path)}, 0)


def test_a_prompt_shorter_than_its_history_is_refused(csv_file: Write) -> None:
    path = csv_file("t,session_id,h_tok,input_length,output_length\n1,a,10,5,7\n")
    with refused(f"{path}, row 2, column 'input_length': '5' is less "):
        make_trace("sessions", {"path": str(path)}, 0)


@pytest.mark.parametrize(
    ("name", "said"),
    [("no.csv", "no.csv does not exist;"), ("", " is a directory;"), ("binary.csv", "is not a text file in UTF-8")],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
    with refused(str(tmp_path), said):
        make_trace("sessions", {"path": str(tmp_path / name)}, 0)


def test_rows_beyond_the_limit_are_not_read(csv_file: Write) -> None:
    path = csv_file(HEADER + GOOD + "x,C,1,1,2,l\n")
    assert len(make_trace("burstgpt", {"path": str(path), "limit": 1}, 0).sessions) == 1


@given(st.text(st.characters(categories=("L", "N", "P", "S", "C", "Z")), max_size=50), st.integers(3, 40))
def test_text_of_others_is_printed_without_control_characters(text: str, limit: int) -> None:
    said = printable(text, limit)
    assert not CONTROL.search(said)
    said.encode()  # fails for a surrogate
    assert len(said) <= 6 * limit
    if len(text) <= limit and not CONTROL.search(text):
        assert said == text


def test_an_unknown_name_is_answered_with_the_nearest_or_all_names() -> None:
    assert nearest("gama", ["gamma", "poisson"]) == " Did you mean 'gamma'?"
    assert nearest("zzz", ["poisson", "gamma"]) == " Choose from: gamma, poisson."
    assert nearest("zzz", []) == ""


def test_validate_returns_the_model_and_names_nested_fields() -> None:
    class Inner(BaseModel):
        depth: int = Field(ge=0)

    class Outer(BaseModel):
        inner: Inner

    assert validate(Outer, {"inner": {"depth": "3"}}, "point").inner.depth == 3
    with pytest.raises(UserError, match=r"^point: parameter 'inner\.depth' should be .* 0, got -1\.$"):
        validate(Outer, {"inner": {"depth": -1}}, "point")


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_parameter_is_described_and_unknown_ones_are_refused(name: str) -> None:
    params = WORKLOADS[name].Params
    assert all(field.description for field in params.model_fields.values())
    assert params.model_config.get("extra") == "forbid"
    assert WORKLOADS[name].name == name


def skipped(path: Path, name: str = "burstgpt") -> list[str]:
    return make_trace(name, {"path": str(path), "skip_bad": True}, 0).header.notes


def test_skipped_rows_are_counted_by_their_fault(csv_file: Write) -> None:
    bad = ["x,C,1,1,2,l", "nan,C,1,1,2,l", "2,C,-1,1,2,l", "2,C,1.5,1,2,l", "2,C,1,99999999,2,l", "2,C,1,1,2,l,9"]
    assert skipped(csv_file(HEADER + GOOD + "\n".join([*bad, "3,C,0,0,0,l", "", GOOD]))) == [
        "1 of 9 rows skipped: 'Request tokens' is negative",
        "1 of 9 rows skipped: 'Request tokens' is not a whole number",
        "1 of 9 rows skipped: 'Response tokens' is too large for a number of tokens",
        "2 of 9 rows skipped: 'Timestamp' is not a number",
        "1 of 9 rows skipped: more fields than names of columns",
        "1 of 3 rows dropped: zero request or response tokens",
        "2 of 9 rows used",
    ]


@pytest.mark.parametrize("row", ["1,C,1,1,2,l,9", "1,C,1,1,2,l,9,9"])
def test_a_first_row_with_too_many_fields_is_not_cut_to_fit(csv_file: Write, row: str) -> None:
    path = csv_file(HEADER + row + "\n" + GOOD + row + "\n")
    assert skipped(path) == ["2 of 3 rows skipped: more fields than names of columns", "1 of 3 rows used"]


def test_a_file_without_a_good_row_is_refused_with_the_faults(csv_file: Write) -> None:
    path = csv_file(HEADER + "x,C,1,1,2,l\n" + "1,C,1,1,2,l,9\n")
    with refused("no good row is left (1 of 2 rows skipped: 'Timestamp' is not a number; 1 of"):
        skipped(path)


def test_a_line_that_is_no_json_object_is_refused_or_counted(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}\n{\n[1]\n')
    with refused("line 2: '{' is not a JSON object; correct or remove this line"):
        make_trace("mooncake", {"path": str(path)}, 0)
    assert "2 of 3 lines skipped: is not a JSON object" in skipped(path, "mooncake")
