"""Quantiles of histograms, as Prometheus interpolates them."""

import pytest

from harness.metrics.histogram import quantile


@pytest.mark.parametrize(
    ("counts", "q", "expected"),
    [
        ([1, 1, 1, 0], 0.0, 0.0),
        ([1, 1, 1, 0], 1 / 3, 1.0),  # the whole first bucket
        ([1, 1, 1, 0], 5 / 6, 4.0),  # half of the third, from 2 to 6
        ([1, 1, 1, 0], 1.0, 6.0),
        ([0, 2, 0, 0], 0.5, 1.5),  # empty buckets are passed over
        ([1, 0, 0, 1], 1.0, 6.0),  # beyond the last bound
        ([0, 0, 0, 0], 0.5, None),
    ],
)
def test_a_quantile_is_interpolated_within_its_bucket(counts: list[int], q: float, expected: float | None) -> None:
    assert quantile([1.0, 2.0, 6.0], counts, q) == pytest.approx(expected)
