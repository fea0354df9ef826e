"""The clock of another host, from questions and answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.live.locust.clock_offset import Exchange, Offset, offset_of

SECONDS = st.floats(-1e6, 1e6)
DELAYS = st.floats(0, 2)


@given(SECONDS, st.lists(st.tuples(st.floats(0, 60), DELAYS, DELAYS), min_size=1))
def test_the_true_offset_lies_within_the_stated_error(ahead_s: float, asked: list[tuple[float, float, float]]):
    exchanges = [Exchange(t, t + out + ahead_s, t + out + back) for t, out, back in asked]
    offset = offset_of(exchanges)
    assert abs(offset.offset_s - ahead_s) <= offset.error_s + 1e-6
    assert offset.error_s <= min(out + back for _, out, back in asked) / 2 + 1e-6


def test_one_exchange_bounds_the_offset_from_below_and_another_from_above():
    held_out, held_back = Exchange(0.0, 105.0, 5.1), Exchange(10.0, 110.1, 15.0)
    assert offset_of([held_out]).error_s == pytest.approx(2.55)
    both = offset_of([held_out, held_back])
    assert both.offset_s == pytest.approx(100.0)
    assert both.error_s == pytest.approx(0.1)


def test_where_exchanges_disagree_the_shortest_one_counts():
    offset = offset_of([Exchange(0.0, 100.0, 0.01), Exchange(50.0, 151.0, 50.002)])
    assert offset == pytest.approx(Offset(100.999, 0.001))


def test_a_time_of_the_other_host_is_converted_to_this_clock():
    assert offset_of([Exchange(7.0, 107.0, 7.0)]).here(130.0) == 30.0


def test_an_offset_needs_an_exchange():
    with pytest.raises(ValueError, match="no exchange"):
        offset_of([])
