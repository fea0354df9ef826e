"""What is said when a pinned table has changed: which column, by how much, and where first."""

from pathlib import Path

import pandas as pd
import pytest

from tests.golden import pinned
from tests.golden.pinned import check

TABLE = pd.DataFrame(
    {"t": [n / 8 for n in range(160)], "kind": ["token", "text"] * 80, "value": [1.0, float("nan")] * 80}
)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """Pinned as `this` with hash `before`."""
    monkeypatch.setattr(pinned, "FOLDER", tmp_path)
    monkeypatch.setenv("PIN_GOLDEN", "1")
    check("this", TABLE, "before")
    monkeypatch.delenv("PIN_GOLDEN")
    return TABLE.copy()


def told(table: pd.DataFrame) -> list[str]:
    with pytest.raises(AssertionError) as error:
        check("this", table, "after")
    first, *lines, last = [line.strip() for line in str(error.value).splitlines()]
    assert first == "this: hash before -> after" and "PIN_GOLDEN=1" in last
    return lines


def test_one_cell_is_found_by_its_column_and_near_its_row(table: pd.DataFrame):
    table.loc[71, "t"] += 0.5
    assert told(table) == ["column t: sum 1590.0 -> 1590.5", "the first difference is in rows 70 to 71"]
    table.loc[33, "kind"] = "audio"
    assert told(table)[1:] == ["column kind: text 80 -> 79, audio – -> 1", "the first difference is in rows 32 to 34"]


def test_where_a_log_goes_another_way_a_row_shows_how(table: pd.DataFrame):
    table.loc[70:, "t"] += 1
    assert told(table)[-2:] == ["the first difference is in rows 70 to 71", "row 72, for example: t 9.0 -> 10.0"]


def test_rows_and_columns_that_come_and_go_are_named(table: pd.DataFrame):
    assert told(table.head(80))[0] == "rows: 160 -> 80"
    assert told(table.drop(columns="value"))[0] == "column value: sum 80.0 -> –, missing 80 -> –"
    assert told(table.assign(stage="thinker"))[0] == "column stage: thinker – -> 160"


def test_the_same_hash_is_enough_and_another_may_be_all_that_differs(table: pd.DataFrame):
    check("this", table, "before")
    assert told(table) == []
