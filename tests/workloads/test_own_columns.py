from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.request_tables.request_table import request_table
from tests.builders import refused, typed_turn
from workloads.errors import UserError
from workloads.formats import load_trace, save_trace
from workloads.trace import Trace
from workloads.transforms.combine import combined

OWN: dict[str, Any] = {"own_tenant": ["b", "", "a b"], "own_predicted": [1.5, np.nan, -3]}


def made(**more: Any) -> Trace:
    plain = Trace.from_turns(typed_turn(session, arrival_s=float(session)) for session in range(3)).columns()
    return Trace.from_columns(plain | more, generator="by hand")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("class", "unknown column 'class' of a trace. Did you mean 'request_class'?"),
        ("input_token", "Did you mean 'input_tokens'? Your own columns begin with own_."),
        ("who", "Choose from: "),
    ],
)
def test_an_unknown_column_is_refused_with_the_nearest_name(name: str, sentence: str) -> None:
    with refused(sentence):
        made(**{name: "a"})


def test_own_columns_are_part_of_the_turns() -> None:
    assert made(**OWN) == made(**dict(reversed(OWN.items()))) != made()
    assert made(**OWN) != made(**{**OWN, "own_tenant": ["b", "", "c"]})
    assert len({made(own_x=value).header.hash for value in (1, 2, "1", None)}) == 4
    with pytest.raises(UserError, match="own_predicted is inf; must be finite"):
        made(own_predicted=[1, np.inf, 2])


@pytest.mark.parametrize("name", ["trace.parquet", "trace.jsonl"])
def test_files_keep_own_columns(tmp_path: Path, name: str) -> None:
    save_trace(made(**OWN), tmp_path / name)
    found = load_trace(tmp_path / name)
    assert found == made(**OWN)
    assert found.columns()["own_tenant"].tolist() == OWN["own_tenant"]


def test_a_line_with_neither_number_nor_text_is_refused(tmp_path: Path) -> None:
    save_trace(made(**OWN), path := tmp_path / "trace.jsonl")
    path.write_text(path.read_text().replace("-3.0", "[3]"))
    with pytest.raises(UserError, match=r"own_predicted is \[3\], no number and no text"):
        load_trace(path)


def test_own_columns_are_empty_for_turns_of_another_trace() -> None:
    both = combined([made(**OWN), made()]).columns()
    without = np.isin(both["session"], [3, 4, 5])
    assert both["own_tenant"][~without].tolist() == OWN["own_tenant"]
    assert set(both["own_tenant"][without]) == {""} and np.isnan(both["own_predicted"][without]).all()
    assert not [name for name in made().columns() if name.startswith("own_")]


def test_request_tables_have_own_columns() -> None:
    events = pd.DataFrame({"t": 1.0, "kind": "turn_start", "session": [2, 0], "turn": 0, "stage": "", "value": 0.0})
    table = request_table(events, pd.DataFrame(made(**OWN).columns()))
    assert table["session"].tolist() == [0, 2]
    assert table["own_tenant"].tolist() == ["b", "a b"] and table["own_predicted"].tolist() == [1.5, -3]
