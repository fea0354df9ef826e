"""A point whose users acted late measures the load generator, and says so."""

import numpy as np
import pytest

from harness.worker.measure import InvalidPoint, check_send_lag


@pytest.mark.parametrize("lags_s", [[], [float("nan")], [0.0] * 10, [0.0] * 19 + [9.0], [0.04] * 10])
def test_users_in_time_are_fine(lags_s: list[float]):
    check_send_lag(np.array(lags_s, float), limit_s=0.05)


@pytest.mark.parametrize("lags_s", [[0.06] * 10, [0.0] * 8 + [0.4, 0.8]])
def test_users_who_come_late_make_the_point_invalid(lags_s: list[float]):
    with pytest.raises(InvalidPoint, match="quiet"):
        check_send_lag(np.array(lags_s), limit_s=0.05)
