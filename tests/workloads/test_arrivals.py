"""Every arrival process against its law: gaps, rate, CV, lag-1 correlation and dispersion of counts."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from workloads.distributions import arrivals
from workloads.seeds import stream
from workloads.statistics.describe import gap_cv, lag_1, rate

N = 50_000
RATE = 4.0


def gaps(times: np.ndarray) -> np.ndarray:
    return np.diff(times, prepend=0.0)


def rng() -> np.random.Generator:
    return stream(1, "arrivals")


def weibull_law(cv: float) -> Callable:
    shape = arrivals.weibull_shape(cv)
    return stats.weibull_min(shape, scale=0.25 / stats.weibull_min(shape).mean()).cdf


def gamma_law(cv: float) -> Callable:
    return stats.gamma(1 / cv**2, scale=0.25 * cv**2).cdf


RENEWAL = {
    "poisson": (arrivals.poisson(rng(), RATE, N), stats.expon(scale=0.25).cdf, 1.0),
    **{f"gamma {cv}": (arrivals.gamma(rng(), RATE, cv, N), gamma_law(cv), cv) for cv in (0.5, 1.0, 2.5, 5.0)},
    **{f"weibull {cv}": (arrivals.weibull(rng(), RATE, cv, N), weibull_law(cv), cv) for cv in (0.5, 1.0, 2.5, 5.0)},
}


@pytest.mark.parametrize("name", RENEWAL)
def test_renewal_processes_follow_their_law(name: str) -> None:
    times, law, cv = RENEWAL[name]
    # Late in a long trace the smallest gaps round to 0, which a test on all of them would notice.
    early, floor = gaps(times)[:5000], 1e-9
    below = law(floor)
    assert np.mean(early <= floor) == pytest.approx(below, abs=4 * np.sqrt(below * (1 - below) / 5000) + 1e-3)
    assert stats.kstest(early[early > floor], lambda x: (law(x) - below) / (1 - below)).pvalue > 0.01
    assert rate(times) == pytest.approx(RATE, rel=4 * cv / np.sqrt(N))
    assert gap_cv(times) == pytest.approx(cv, rel=0.05 * max(cv, 1))
    assert abs(lag_1(times) or 0.0) < 4 / np.sqrt(N)


@pytest.mark.parametrize("steps", [0, 4])
def test_a_ramp_is_the_poisson_process_of_its_rate(steps: int) -> None:
    """Mapped back through the integral of its rate it is a unit Poisson process."""
    start, end, ramp_s = 5.0, 50.0, 200.0
    unit = arrivals.poisson(rng(), 1.0, N)
    times = arrivals.ramp(unit, start, end, ramp_s, steps)
    grid = np.linspace(0, times[-1], 2_000_001)
    if steps:
        level = np.linspace(start, end, steps)[np.minimum((grid / ramp_s * steps).astype(int), steps - 1)]
    else:
        level = start + (end - start) * np.minimum(grid / ramp_s, 1)
    mass = np.concatenate([[0], np.cumsum((level[1:] + level[:-1]) / 2 * np.diff(grid))])
    back = np.diff(np.interp(times, grid, mass), prepend=0.0)
    assert stats.kstest(back[:5000], "expon").pvalue > 0.01
    assert np.allclose(np.cumsum(back), unit, rtol=1e-3, atol=0.2)
    assert np.all(np.diff(times) >= 0)


def test_a_ramp_down_and_one_step_keep_their_last_rate() -> None:
    unit = np.arange(1.0, 1001.0)
    falling = arrivals.ramp(unit, 20.0, 2.0, 10.0, 0)
    assert np.sum(falling <= 10.0) == 110
    assert np.allclose(np.diff(falling)[-100:], 0.5)
    assert np.allclose(np.diff(arrivals.ramp(unit, 1.0, 4.0, 10.0, 1)), 0.25)


@pytest.mark.parametrize("weibull", [False, True])
def test_windows_of_one_rate_are_one_renewal_process(weibull: bool) -> None:
    n = 60
    times = arrivals.windows(rng(), 100.0, np.full(n, RATE), np.full(n, 2.5), np.full(n, weibull))
    law = weibull_law(2.5) if weibull else gamma_law(2.5)
    assert stats.kstest(np.diff(times)[:5000], law).pvalue > 0.01
    assert len(times) == pytest.approx(n * 100 * RATE, rel=4 * 2.5 / np.sqrt(n * 100 * RATE))


@pytest.mark.parametrize("weibull", [False, True])
def test_windows_start_in_the_steady_state(weibull: bool) -> None:
    """Begun at an arrival, 2 windows of 200 expected requests with cv 5 would hold 12 too many."""
    counts = [
        len(arrivals.windows(stream(i, "x"), 100.0, np.full(2, 2.0), np.full(2, 5.0), np.full(2, weibull)))
        for i in range(400)
    ]
    assert np.mean(counts) == pytest.approx(400, abs=float(np.std(counts) / 5))


def test_the_busiest_window_and_the_speed_that_gives_it_a_rate() -> None:
    times = np.array([0.0, 10, 11, 12, 13, 40, 41, 60])
    assert arrivals.busiest(times, 5.0) == 10.0
    scale = arrivals.scale_to_peak(times, rate=2.0, window_s=2.0)
    assert scale == 1.5  # four arrivals within 3 s of the record shall come within 2 s
    assert arrivals.busiest(times / scale, 2.0 + 1e-9) == 10 / scale
    with pytest.raises(ValueError, match="takes 20 requests and there are 8"):
        arrivals.scale_to_peak(times, rate=2.0, window_s=10.0)
    with pytest.raises(ValueError, match="come at once"):
        arrivals.scale_to_peak(np.zeros(5), rate=2.0, window_s=1.0)
