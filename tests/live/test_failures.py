"""The failure log: rows in order, from a place on, and their counts."""

from hypothesis import given
from hypothesis import strategies as st

from harness.live.client.logs import FailureLog

REASONS = st.sampled_from(["closed 1006", "garbage", "timeout: no session"])


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 2**31 - 1), st.integers(0, 99), REASONS)),
    st.integers(0, 9),
)
def test_what_was_added_is_there_in_order(rows: list[tuple[float, int, int, str]], begin: int):
    log = FailureLog()
    for row in rows:
        log.add(*row)
    table = log.table(begin)
    assert table.column_names == ["t_s", "session", "turn", "reason"]
    assert [tuple(row.values()) for row in table.to_pylist()] == rows[begin:]
    assert len(log) == len(rows) == log.counts.total()
