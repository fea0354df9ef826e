"""Spread over seeds and paired comparison."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import fisher_exact

from harness.metrics.stats import Spread, across_seeds, fisher, paired, wilson


def test_ten_seeds_have_a_median_a_range_and_an_interval_within_it():
    spread = across_seeds({seed: float(seed) for seed in range(1, 11)})
    assert (spread.median, spread.low, spread.high) == (5.5, 1.0, 10.0)
    assert (spread.n, spread.missing) == (10, 0)
    assert spread.interval is not None
    low, high = spread.interval
    assert 1.0 < low < 5.5 < high < 10.0


@pytest.mark.parametrize(
    ("values", "spread"),
    [
        ([], Spread(None, None, None, None, 0, 0)),
        ([None], Spread(None, None, None, None, 0, 1)),
        ([1.0], Spread(1.0, 1.0, 1.0, None, 1, 0)),
        ([1.0, None, 3.0], Spread(2.0, 1.0, 3.0, None, 2, 1)),
        ([2.0, 0.0, 1.0], Spread(1.0, 0.0, 2.0, (0.0, 2.0), 3, 0)),  # of few seeds the interval is the range
        ([2.0, 0.0, 1.0, 4.0, None, 3.0], Spread(2.0, 0.0, 4.0, (0.0, 4.0), 5, 1)),
    ],
)
def test_few_seeds_and_missing_ones(values: list[float | None], spread: Spread):
    assert across_seeds(dict(enumerate(values))) == spread


def test_pairs_need_both_sides_and_a_ratio_to_zero_is_missing():
    result = paired({0: 1.0, 1: 2.0, 2: None, 3: 4.0, 5: 0.0, 6: 2.0}, {0: 0.5, 1: 1.0, 2: 9.0, 4: 7.0, 5: 1.0, 6: 0.0})
    assert result.differences == {0: -0.5, 1: -1.0, 2: None, 3: None, 4: None, 5: 1.0, 6: -2.0}
    assert result.ratios == {0: 0.5, 1: 0.5, 2: None, 3: None, 4: None, 5: None, 6: 0.0}
    assert (result.difference.median, result.difference.n, result.difference.missing) == (-0.75, 4, 3)
    assert (result.ratio.median, result.ratio.n, result.ratio.missing) == (0.5, 3, 4)


@given(st.dictionaries(st.integers(0, 99), st.none() | st.floats(-1e6, 1e6), max_size=12))
def test_the_interval_lies_within_the_range_and_everything_is_counted(values):
    spread = across_seeds(values)
    assert spread.n + spread.missing == len(values)
    if spread.n:
        assert spread.low is not None and spread.median is not None and spread.high is not None
        low, high = spread.interval or (spread.low, spread.high)
        assert spread.low <= low <= high <= spread.high
        assert spread.low <= spread.median <= spread.high


@pytest.mark.parametrize(
    ("k", "n", "interval"), [(0, 10, (0.0, 0.2775)), (5, 10, (0.2366, 0.7634)), (14, 20, (0.4810, 0.8545))]
)
def test_wilson_as_published(k, n, interval):
    assert wilson(k, n) == pytest.approx(interval, abs=5e-5)


@given(n=st.integers(0, 8), other=st.integers(0, 8), data=st.data())
def test_fishers_p_as_scipy_has_it(n: int, other: int, data: st.DataObject) -> None:
    k, other_k = data.draw(st.integers(0, n)), data.draw(st.integers(0, other))
    _, expected = fisher_exact([[k, n - k], [other_k, other - other_k]])
    assert fisher(k, n, other_k, other) == pytest.approx(expected)
    assert fisher(other_k, other, k, n) == pytest.approx(expected)


def test_no_runs_have_no_share():
    with pytest.raises(ValueError, match="0 of 0"):
        wilson(0, 0)
