"""The pool-fill model on lines that are exact, and on a plateau."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.metrics.kv_pool import filling, last_third, occupancy, saturated_s, saturation, slope
from tests.metrics.frame_log import steps_of

NO_FAILS = pd.DataFrame({"t": [], "value": []})


def filled(at_0: float, rate: float, end_s: float = 300, ceiling: float = 1.0) -> pd.Series:
    """A step each 0.1 s, with a pool of 10 million blocks that fills on a line up to a ceiling."""
    times = np.arange(0, end_s + 0.1, 0.1)
    used = np.rint(1e7 * np.minimum(at_0 + rate * times, ceiling)).astype(int)
    return occupancy(steps_of(times, used, 10_000_000), end_s)


@settings(max_examples=50)
@given(at_0=st.floats(0, 0.2), t_sat_s=st.floats(70, 2000))
def test_an_exact_line_is_predicted_exactly(at_0: float, t_sat_s: float) -> None:
    pool = filled(at_0, (1 - at_0) / t_sat_s)
    line = filling(pool)
    assert line is not None and line.at_0 == pytest.approx(at_0, abs=2e-3)
    assert saturation(line) == pytest.approx(t_sat_s, rel=2e-3)
    measured_s = saturated_s(pool, NO_FAILS)
    assert (measured_s is not None) == (pool.max() >= 0.995)
    if measured_s is not None:
        assert abs(measured_s - t_sat_s) < 0.01 * t_sat_s + 1


def test_the_papers_line_is_the_arithmetic_of_equation_1() -> None:
    """N = 128, 55 tokens a frame of 2 s, 32,500 blocks of 16: full after 147.7 s (specification 2.3: 148 s)."""
    rate = 128 * 55 / (2 * 32_500 * 16)
    line = filling(filled(0.0, rate))
    assert line is not None and saturation(line) == pytest.approx(147.7, abs=0.2)


def test_a_refusal_to_a_waiting_request_is_a_full_pool_and_one_to_a_running_is_not() -> None:
    pool = filled(0.0, 1 / 148)
    fails = pd.DataFrame({"t": [120.0, 140.0, 145.0], "value": [1.0, 0.0, 0.0]})
    assert saturated_s(pool, fails) == 140.0
    assert saturated_s(pool, NO_FAILS) == pytest.approx(148, abs=1.1)


def test_a_plateau_has_no_slope_and_is_never_full() -> None:
    pool = filled(0.0, 1 / 140, ceiling=0.256)
    late = last_third(pool)
    assert late.index[0] == 200 and late.index[-1] == 300
    assert late.mean() == pytest.approx(0.256) and slope(late) == pytest.approx(0, abs=1e-9)
    assert saturated_s(pool, NO_FAILS) is None
    flat = filling(filled(0.256, 0.0))
    assert flat is not None and saturation(flat) is None


def test_a_stalled_engine_holds_what_it_held() -> None:
    pool = occupancy(steps_of(np.array([1.5, 2.5, 3.25]), np.array([100, 400, 1000])), 10)
    assert pool.tolist() == [0, 0, 0.1, 0.4] + [1.0] * 7
    assert pool.index.tolist() == list(range(11))


def test_replicas_and_other_stages() -> None:
    own = steps_of(np.array([1.0]), np.array([1000]))
    other = own.assign(replica=1, kv_used=0)
    talker = own.assign(stage="talker")
    assert occupancy(pd.concat([own, other, talker]), 3).tolist() == [0, 0.5, 0.5, 0.5]
    assert filling(occupancy(own, 11)) is None and slope(occupancy(own, 1)) is None
