"""A search finds the largest value that passes, with few trials, on all seeds together and on each."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.slo.search import Bounds, Interval, Search

EXACT = 10**9


def searched(bounds: Bounds, most: dict[int, float]) -> tuple[Search, list[list[tuple[float, int]]]]:
    """The search at its end, where seed s meets every target up to `most[s]`, and its rounds."""
    search, rounds = Search(bounds, {seed: {} for seed in most}), []
    while wanted := search.wanted:
        rounds.append(wanted)
        for value, seed in wanted:
            assert bounds.lowest <= value <= bounds.highest and value not in search.met[seed]
            search.met[seed][value] = value <= most[seed]  # type: ignore[index]
    return search, rounds


@st.composite
def bounds(draw: st.DrawFn) -> Bounds:
    lowest = draw(st.integers(1, 40))
    return Bounds(lowest, draw(st.integers(lowest, 300)), draw(st.integers(1, 300)), whole=True, close=EXACT)


@given(bounds(), st.lists(st.integers(0, 400), min_size=1, max_size=4))
def test_it_finds_the_largest_value_of_all_and_of_each_seed(bounds: Bounds, most: list[int]):
    def reached(limit: float) -> float | None:
        return min(limit, bounds.highest) if limit >= bounds.lowest else None

    search, rounds = searched(bounds, dict(enumerate(most)))
    assert search.holds == reached(min(most))
    assert (search.breaks is None) == (min(most) >= bounds.highest)
    assert search.interval.low == reached(min(most)) and search.interval.high == reached(max(most))
    assert not search.surprises
    # Doubling up or halving down to the value, then halving the gap between: of all seeds, then of those that go on.
    assert len(rounds) <= 4 * (math.ceil(math.log2(bounds.highest)) + 1)
    together = [found for found in rounds if len(found) == len(most)]
    assert all(len({value for value, _ in found}) == 1 for found in together[:1])


@given(st.floats(0.02, 200), st.floats(0.01, 100))
def test_a_rate_is_found_as_closely_as_asked(most: float, first: float):
    search, rounds = searched(Bounds(0.01, 256, first, whole=False, close=50), {0: most})
    assert search.holds is not None and search.breaks is not None
    assert search.holds <= most < search.breaks
    assert search.breaks - search.holds <= 0.03 * search.holds  # 2 %, and three digits of a value between
    assert len(rounds) <= 30


def test_a_seed_that_holds_more_goes_on_alone():
    search, rounds = searched(Bounds(1, 64, 8, whole=True, close=EXACT), {0: 11, 1: 11, 2: 13})
    assert [{value for value, _ in found} for found in rounds] == [{8}, {16}, {12}, {10}, {11}, {14}, {13}]
    assert [seed for _, seed in rounds[-1]] == [2] and search.interval == Interval(11, 11, 13)


def test_a_seed_that_holds_nothing_is_told():
    search, _ = searched(Bounds(1, 64, 8, whole=True, close=EXACT), {0: 0, 1: 3, 2: 5})
    assert search.holds is None and search.breaks == 1 and search.interval == Interval(None, 3, 5)
    assert searched(Bounds(1, 64, 8, whole=True, close=EXACT), {0: 0, 1: 0, 2: 5})[0].interval.middle is None


def test_what_is_not_monotone_is_a_surprise_and_the_first_break_counts():
    bounds = Bounds(1, 64, 8, whole=True, close=EXACT)
    search = Search(bounds, {0: {8: True, 16: False, 24: True}, 1: {8: True, 16: True, 24: True}})
    assert search.holds == 8 and search.surprises == {0: (16, 24)}


@pytest.mark.parametrize(("close", "most", "gap"), [(6, 50, 8), (50, 50, 1), (50, 240, 4)])
def test_a_search_ends_when_the_gap_is_small_enough(close: int, most: int, gap: int):
    search, _ = searched(Bounds(1, 256, 8, whole=True, close=close), {0: most})
    assert search.holds is not None and search.breaks is not None
    assert search.holds <= most < search.breaks <= search.holds + gap
