"""The least difference of a metric that a comparison reports."""

import pytest

from reports.comparison.perceptible import least_difference


@pytest.mark.parametrize(
    ("metric", "n", "expected"),
    [
        ("audio_ttfp_p90", 100, 0.050),
        ("ttft_p50", 100, 0.050),
        ("max_gap_p99", 100, 0.020),
        ("tbt_p50", 100, 0.005),
        ("continuity", 1000, 0.01),  # one point
        ("continuity", 150, 0.01),  # one and a half turns of 150
        ("continuity", 100, 0.015),
        ("continuity", 0, 0.01),
        ("failed", 100, 1.5),
        ("unfinished", 100, 1.5),
        ("shed", 100, 1.5),
        ("silent_replies", 100, 1.5),
        ("completed_rps", 100, 0.0),  # the ratio alone decides
    ],
)
def test_a_difference_is_reported_from_where_a_person_would_notice_it(metric: str, n: int, expected: float) -> None:
    assert least_difference(metric, n) == pytest.approx(expected)
