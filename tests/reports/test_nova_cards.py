import numpy as np
import pytest

from reports.cards import card as cards
from reports.claims.grading import HOLDS
from reports.claims.quantities import Measure
from reports.claims.stated import claim, saturated, times
from reports.figures.picture import Picture
from reports.figures.style import style
from reports.papers.nova import fig4, saturation, table6
from reports.papers.nova.common import RATES, REQUESTS
from reports.papers.nova.table5 import PAPER, SERVICE_CV, WAIT_ERROR, mg1


def test_the_least_bandwidth_is_all_layers_in_a_pass() -> None:
    """Equation (8) with two slots or more: M / T."""
    layers = table6.encoder()
    assert table6.least_gb_s(0.5) == pytest.approx(layers.layers * layers.layer_bytes / 0.5 / 1e9)


@pytest.mark.parametrize(("slower", "highest"), [(1.0, 44), (1.15, 38), (1.2, 36), (1.25, 36), (1.3, 34)])
def test_contention_of_a_fifth_ends_fig_4s_window_at_36(slower: float, highest: int) -> None:
    assert max(fig4.window(slower)) == highest


def test_a_verdict_turns_at_the_errors_with_another_outcome() -> None:
    def thrice(number: float) -> Measure:
        return lambda panels: dict.fromkeys(range(3), number)

    over = {"−1 %": thrice(0.95), "+1 %": thrice(1.2)}
    lowest = times((1.001, 10.0), words="the lowest")
    judged = claim("quicker", lowest, thrice(1.05), untold=saturated("FLOP/s", over))
    assert saturation.turns(judged, {}) == (HOLDS, ["−1 %"])


@pytest.mark.parametrize("name", ["nova-fig4", "nova-fig6", "nova-fig8"])
def test_what_the_model_says_is_drawn_without_runs(name: str) -> None:
    draw = cards.figures()[name].draw
    with style():
        assert draw is not None and isinstance(draw({}), Picture)


def test_a_queue_waits_as_textbooks_say() -> None:
    """M/M/1 waits ρ/(1−ρ) services on average, M/D/1 half of that; at ρ = 1 and beyond it never settles."""
    exponential = np.random.default_rng(0).exponential(2.0, 400_000)
    assert mg1(0.3, exponential).wait_s == pytest.approx(2 * 0.6 / 0.4, rel=0.02)
    assert mg1(0.3, [2.0] * 5) == pytest.approx((0.6, 0.6 / 0.4))
    assert mg1(0.8, [1.25]) == (1.0, None) and mg1(1.0, [1.35]).wait_s is None


# Table V: mean service and theory by rate. Its services vary little: a coefficient of variation of 0.14 to 0.27.
TABLE_5 = {0.3: (1.39, 0.51), 0.4: (1.44, 1.00), 0.5: (1.43, 1.86), 0.6: (1.42, 4.32), 0.7: (1.38, 20.99)}


@pytest.mark.parametrize(("rate", "published"), TABLE_5.items())
def test_a_queue_waits_as_table_5_says(rate: float, published: tuple[float, float]) -> None:
    mean_s, wait_s = published
    low, high = (mg1(rate, [mean_s * (1 - cv), mean_s * (1 + cv)]).wait_s for cv in (0.0, 0.27))
    assert low is not None and high is not None
    slack = 1.25 if rate > 0.6 else 1.03  # its services have two decimals, and close to ρ = 1 these decide
    assert low / slack <= wait_s <= high * slack


def test_the_sampling_error_of_a_mean_wait() -> None:
    """Queues with one server and the paper's services, wait by wait (Lindley)."""
    rng, queues = np.random.default_rng(0), 4000
    gaps = rng.exponential(size=(REQUESTS, queues))
    spread = rng.gamma(SERVICE_CV**-2, SERVICE_CV**2, size=(REQUESTS, queues))
    waits = {}
    for rate in RATES:
        wait = total = np.zeros(queues)
        for gap, took in zip(gaps / rate, spread * PAPER["processing"][rate], strict=True):
            total = total + wait
            wait = np.maximum(wait + took - gap, 0)
        waits[rate] = total / total.mean()
    together = {"0.3 to 0.6": RATES[:4], "0.3 to 0.7": RATES[:5], "0.7": RATES[4:5], "0.8": RATES[5:]}
    errors = {name: 1.96 * np.mean([waits[rate] for rate in each], axis=0).std() for name, each in together.items()}
    assert errors == pytest.approx(WAIT_ERROR, rel=0.05)
