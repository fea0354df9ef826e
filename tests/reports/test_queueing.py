"""The theory of one queue, beside textbook cases and a paper's table."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.papers.nova.common import RATES, REQUESTS
from reports.papers.nova.table5 import PAPER, SERVICE_CV, WAIT_ERROR, mg1


def test_exponential_and_constant_service():
    """M/M/1 waits ρ/(1−ρ) services on average, M/D/1 half of that."""
    exponential = np.random.default_rng(0).exponential(2.0, 400_000)
    assert mg1(0.3, exponential).wait_s == pytest.approx(2 * 0.6 / 0.4, rel=0.02)
    assert mg1(0.3, [2.0] * 5) == pytest.approx((0.6, 0.6 / 0.4))


# Nova, Table V: mean service and theory by rate. Its services vary little: a coefficient of variation of 0.14 to 0.27.
NOVA = {0.3: (1.39, 0.51), 0.4: (1.44, 1.00), 0.5: (1.43, 1.86), 0.6: (1.42, 4.32), 0.7: (1.38, 20.99)}


@pytest.mark.parametrize(("rate", "published"), NOVA.items())
def test_the_table_of_the_nova_paper(rate: float, published: tuple[float, float]):
    mean_s, wait_s = published
    low, high = (mg1(rate, [mean_s * (1 - cv), mean_s * (1 + cv)]).wait_s for cv in (0.0, 0.27))
    assert low is not None and high is not None
    slack = 1.25 if rate > 0.6 else 1.03  # its services have two decimals, and close to ρ = 1 these decide
    assert low / slack <= wait_s <= high * slack


def test_the_sampling_error_of_a_mean_wait():
    """Queues with one server and the paper's services, wait by wait (Lindley)."""
    rng, queues = np.random.default_rng(0), 4000
    gaps = rng.exponential(size=(REQUESTS, queues))
    spread = rng.gamma(SERVICE_CV**-2, SERVICE_CV**2, size=(REQUESTS, queues))
    waits = {}
    for rate in RATES:
        wait = total = np.zeros(queues)
        for gap, times in zip(gaps / rate, spread * PAPER["processing"][rate], strict=True):
            total = total + wait
            wait = np.maximum(wait + times - gap, 0)
        waits[rate] = total / total.mean()
    together = {"0.3 to 0.6": RATES[:4], "0.3 to 0.7": RATES[:5], "0.7": RATES[4:5], "0.8": RATES[5:]}
    errors = {name: 1.96 * np.mean([waits[rate] for rate in each], axis=0).std() for name, each in together.items()}
    assert errors == pytest.approx(WAIT_ERROR, rel=0.05)


def test_an_overloaded_queue_has_no_wait_that_it_settles_at():
    assert mg1(0.8, [1.25]) == (1.0, None) and mg1(1.0, [1.35]).wait_s is None


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=50), st.floats(0.01, 0.99))
def test_more_load_or_more_spread_waits_longer(service_s: list[float], utilisation: float):
    mean_s = float(np.mean(service_s))
    here, busier = (mg1(share / mean_s, service_s).wait_s for share in (utilisation, (1 + utilisation) / 2))
    even = mg1(utilisation / mean_s, [mean_s]).wait_s
    assert here is not None and even is not None and (busier is None or here <= busier)
    assert even <= here * (1 + 1e-9)


def test_no_service_is_no_queue():
    for wrong in ([], [1.0, np.nan], [-1.0]):
        with pytest.raises(ValueError, match="times of service"):
            mg1(0.5, wrong)
