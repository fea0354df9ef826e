import numpy as np
import pytest
from scipy import stats

from workloads import arrivals
from workloads.seeds import stream

N = 50_000


def gaps(times: np.ndarray) -> np.ndarray:
    return np.diff(times, prepend=0.0)


def test_poisson_gaps_are_exponential_and_uncorrelated() -> None:
    times = arrivals.poisson(stream(1, "arrivals"), 4.0, N)
    assert stats.kstest(gaps(times), stats.expon(scale=0.25).cdf).pvalue > 0.01
    lag_1 = np.corrcoef(gaps(times)[:-1], gaps(times)[1:])[0, 1]
    assert abs(lag_1) < 3 / np.sqrt(N)


def test_poisson_counts_have_dispersion_one() -> None:
    times = arrivals.poisson(stream(1, "arrivals"), 4.0, N)
    counts = np.bincount(times.astype(int))[:-1]
    dispersion = counts.var(ddof=1) / counts.mean()
    assert abs(dispersion - 1) < 4 * np.sqrt(2 / len(counts))


@pytest.mark.parametrize("cv", [0.5, 1.0, 2.5])
def test_gamma_gaps_have_the_rate_and_cv_asked_for(cv: float) -> None:
    times = arrivals.gamma(stream(1, "arrivals"), 4.0, cv, N)
    shape = 1 / cv**2
    # Late in a long trace the smallest gaps round to 0, which a test on all of them would notice.
    early = gaps(times)[:5000]
    assert stats.kstest(early, stats.gamma(shape, scale=0.25 / shape).cdf).pvalue > 0.01
    assert gaps(times).mean() == pytest.approx(0.25, rel=4 * cv / np.sqrt(N))
    assert gaps(times).std() / gaps(times).mean() == pytest.approx(cv, rel=0.05)


def test_gamma_with_a_large_cv_comes_in_bursts() -> None:
    times = arrivals.gamma(stream(1, "arrivals"), 4.0, 5.0, N)
    counts = np.bincount(times.astype(int))
    assert counts.var() / counts.mean() > 5
