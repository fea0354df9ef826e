from pathlib import Path

import pandas as pd
import pytest

from tests.golden import pinned
from tests.golden.pinned import check

ROWS = 160
TABLE = pd.DataFrame(
    {"t": [n / 8 for n in range(ROWS)], "kind": ["token", "text"] * 80, "value": [1.0, float("nan")] * 80}
)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """A copy of TABLE, which is pinned as `this` with hash `before`."""
    monkeypatch.setattr(pinned, "FOLDER", tmp_path)
    monkeypatch.setenv("PIN_GOLDEN", "1")
    check("this", TABLE, "before")
    monkeypatch.delenv("PIN_GOLDEN")
    return TABLE.copy()


def differences(table: pd.DataFrame) -> list[str]:
    """The lines between the first, which has the hashes, and the last, which says how to pin the table anew."""
    with pytest.raises(AssertionError) as error:
        check("this", table, "after")
    first, *lines, last = [line.strip() for line in str(error.value).splitlines()]
    assert first == "this: hash before -> after" and "PIN_GOLDEN=1" in last
    return lines


def test_the_pinned_hash_is_accepted(table: pd.DataFrame):
    check("this", table, "before")


def test_a_changed_number_is_reported_with_the_column_s_sum_and_the_rows_around_it(table: pd.DataFrame):
    table.loc[71, "t"] += 0.5
    # 0 + 1 + ... + 159 = 12,720 eighths. 160 rows in 64 pieces: two or three rows each
    assert differences(table) == ["column t: sum 1590.0 -> 1590.5", "the first difference is in rows 70 to 71"]


def test_a_changed_text_is_reported_with_the_counts_of_both_values(table: pd.DataFrame):
    table.loc[33, "kind"] = "audio"
    assert differences(table) == [
        "column kind: text 80 -> 79, audio – -> 1",
        "the first difference is in rows 32 to 34",
    ]


def test_missing_rows_and_columns_that_went_or_came_are_named(table: pd.DataFrame):
    assert differences(table.head(80))[0] == "rows: 160 -> 80"
    assert differences(table.drop(columns="value").assign(stage="thinker")) == [
        "column value: sum 80.0 -> –, missing 80 -> –",
        "column stage: thinker – -> 160",
        "the first difference is in rows 0 to 1",
    ]
