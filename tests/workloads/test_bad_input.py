"""Every mistake of the user gets one sentence that names the place, the value and the mend."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import BaseModel, Field

from workloads.errors import UserError, nearest, validate
from workloads.registry import WORKLOADS, make_trace

HEADER = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
GOOD = "1,ChatGPT,10,20,30,Conversation log\n"

Write = Callable[..., Path]


def refusal(name: str, params: dict) -> str:
    with pytest.raises(UserError) as error:
        make_trace(name, params, 0)
    sentence = str(error.value)
    assert "\n" not in sentence
    assert sentence.endswith((".", "?"))
    return sentence


def test_seed() -> None:
    with pytest.raises(UserError, match="seed must be 0 or more, got -1"):
        make_trace("voice", {}, -1)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", " is empty; give a file with data in it."),
        ("\n\n", " has no header row; give a CSV file with column names."),
        (HEADER, " has a header but no rows; give a file with at least one request."),
        (HEADER + "\n,,,,,\n", " has a header but no rows; give a file with at least one request."),
        ("a,b\n1,2\n", " has no column 'Timestamp'; rename one of its columns (a, b)."),
        (HEADER + GOOD + "x,C,1,1,2,l\n", ", row 3, column 'Timestamp': 'x' is not a number; correct"),
        (
            HEADER + "\n" + GOOD + "2,C,abc,1,2,l\n",
            ", row 4, column 'Request tokens': 'abc' is not a number;",
        ),
        (HEADER + "True,C,1,1,2,l\n", ", row 2, column 'Timestamp': 'True' is not a number;"),
        (HEADER + "nan,C,1,1,2,l\n", ", row 2, column 'Timestamp': 'nan' is not a number;"),
        (HEADER + "inf,C,1,1,2,l\n", ", row 2, column 'Timestamp': 'inf' is not finite; correct or remove"),
        (HEADER + "-1,C,1,1,2,l\n", ", row 2, column 'Timestamp': '-1' is negative; correct or remove"),
        (HEADER + "1,C,1,-5,2,l\n", ", row 2, column 'Response tokens': '-5' is negative;"),
        (HEADER + "1,C,1.5,1,2,l\n", ", row 2, column 'Request tokens': '1.5' is not a whole number;"),
        (HEADER + "1,C,1e30,1,2,l\n", ", row 2, column 'Request tokens': '1e30' is too large"),
        (HEADER + GOOD + "1,C\n", ", row 3, column 'Request tokens': '' is not a number;"),
        (HEADER + "1,C,1,1,2,l,9\n", ", row 2: 7 fields where 6 belong; correct this row."),
        (
            HEADER + GOOD + "1,C,1,1,2,l,9\n",
            ", row 3: 7 fields where 6 belong; correct this row.",
        ),
        (HEADER + '1,"C,1,1,2,l\n', " is not a readable CSV file ("),
        (HEADER + "1,C,0,0,0,l\n", ": every row has zero request or response tokens; give a file with"),
    ],
)
def test_csv_content(csv_file: Write, text: str, sentence: str) -> None:
    path = csv_file(text)
    assert f"{path}{sentence}" in refusal("burstgpt", {"path": str(path)})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "t,session_id,query\n1,a,3\n",
            " has no column 'output' or 'output_length'; rename one of its columns (t, ",
        ),
        ("t,query,output\n1,3,4\n", " has no column 'session_id'; rename"),
        (
            "t,session_id,h_tok,input_length,output_length\n1,a,10,5,7\n",
            ", row 2, column 'input_length': '5' is less than 'h_tok' of the same row;",
        ),
    ],
)
def test_session_csv_content(csv_file: Write, text: str, sentence: str) -> None:
    path = csv_file(text)
    assert f"{path}{sentence}" in refusal("sessions", {"path": str(path)})


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert f"{tmp_path}/no.csv does not exist;" in refusal("burstgpt", {"path": f"{tmp_path}/no.csv"})
    assert f"{tmp_path} is a directory;" in refusal("sessions", {"path": str(tmp_path)})
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
    assert "is not a text file in UTF-8" in refusal("sessions", {"path": str(tmp_path / "binary.csv")})


def test_rows_beyond_the_limit_are_not_read(csv_file: Write) -> None:
    path = csv_file(HEADER + GOOD + "x,C,1,1,2,l\n")
    assert len(make_trace("burstgpt", {"path": str(path), "limit": 1}, 0).sessions) == 1


def test_nearest_offers_the_closest_or_all() -> None:
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
