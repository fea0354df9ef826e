"""How many events a percentile needs."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness.metrics.turns import DEFINITIONS
from reports.tables.columns import least_events, too_few


def test_the_usual_percentiles() -> None:
    needs = {"ttft_p50": 2, "audio_ttfp_p90": 10, "ttft_p95": 20, "online.ttft_p99": 100, "send_delay_p99.9": 1000}
    assert {metric: least_events(metric) for metric in needs} == needs


def test_what_is_no_percentile_needs_one_event() -> None:
    assert {least_events(name) for name in ("continuity", "ttft_mean", "tbt_p99_in_deadline", "kv_peak")} == {1}
    assert all(least_events(name) > 1 for name in DEFINITIONS if name.endswith(("_p50", "_p90", "_p99")))


@given(st.sampled_from([50, 75, 90, 95, 99]), st.data())
def test_of_fewer_events_it_lies_between_the_two_largest_and_one_is_expected_beyond_else(
    percentile: int, data: st.DataObject
) -> None:
    metric = f"any_p{percentile}"
    least = least_events(metric)
    n = data.draw(st.integers(2, 3 * least))
    values = np.arange(n, dtype=float)
    if too_few(metric, n):
        assert np.percentile(values, percentile) > values[-2]
    else:
        assert n * (100 - percentile) >= 100


def test_no_value_is_not_marked() -> None:
    assert not too_few("ttft_p99", 0) and too_few("ttft_p99", 99) and not too_few("ttft_p99", 100)
