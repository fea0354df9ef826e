from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest

from engines.core.device import Row
from engines.devices.step_time import StepTime, totals
from harness.calibration.fit import Drift, OwnCosts, fit_costs, nearest_canary, step_costs

MODEL = StepTime({"constant": 0.004, "tokens_0_4": 0.001})
NO_CANARY = pd.DataFrame({"begin_s": [], "end_s": []}, dtype=float)


def decodes(count: int) -> list[Row]:
    return [Row(str(i), 1, 50, True) for i in range(count)]


def costs_of(batches: list[int], seconds: list[float]) -> pd.DataFrame:
    """Back to back from 0 s on."""
    end_s = np.cumsum(seconds)
    held = pd.DataFrame([asdict(totals(decodes(count))) for count in batches])
    facts = {"begin_s": end_s - seconds, "end_s": end_s, "seconds": seconds, "device_s": seconds}
    return pd.DataFrame(facts).join(held)


def seen(*spans: tuple[float, float]) -> pd.DataFrame:
    """What the device logged: steps of one decode from and until these times, s."""
    begin_s, end_s = zip(*spans, strict=True)
    return pd.DataFrame([asdict(totals(decodes(1)))] * len(spans)).assign(begin_s=begin_s, end_s=end_s)


def test_a_cost_runs_from_the_end_of_the_step_before_or_from_the_wake_up():
    rows = [(1.000, 0.010, 1), (1.011, 0.010, 1), (1.022, 0.010, 0), (2.000, 0.010, 1), (2.010, 0.030, 0)]
    steps = pd.DataFrame(rows, columns=["t_s", "dt_s", "running"]).assign(requests=1, waiting=0)  # idle after the third
    logged = seen(*((t_s + 0.001, t_s + dt_s) for t_s, dt_s, _ in rows))
    costs = step_costs(steps, logged, pd.DataFrame({"begin_s": [2.011], "end_s": [2.031]}))
    assert costs["seconds"].tolist() == pytest.approx([0.010, 0.011, 0.011, 0.010, 0.010])
    assert costs["begin_s"].tolist() == pytest.approx([1.0, 1.010, 1.021, 2.0, 2.010])
    assert costs["device_s"].iloc[0] == pytest.approx(0.009)


def test_logs_of_different_steps_are_refused():
    steps = pd.DataFrame({"t_s": [0.0], "dt_s": [0.1], "requests": [2], "running": [0], "waiting": [0]})
    with pytest.raises(ValueError, match="not the same ones"):
        step_costs(steps, seen((0.0, 0.1)), NO_CANARY)


def test_the_same_steps_are_charged_what_they_cost_each_once():
    batches, seconds = [1, 2, 2, 3, 1], [0.005, 0.006, 0.5, 0.007, 0.008]  # a stall among them
    costs = costs_of(batches, seconds)
    own = OwnCosts(costs, MODEL)
    charged = [own(decodes(n), now) for n, now in zip(batches, costs["begin_s"], strict=True)]
    assert charged == pytest.approx(seconds) and own.matched == own.charged == 5


def test_another_content_is_charged_the_nearest_step_and_the_difference_of_the_model():
    own = OwnCosts(costs_of([2, 2, 2], [0.006, 0.006, 0.006]), MODEL)
    assert own(decodes(3), 0.0) == pytest.approx(0.007)
    assert (own.matched, own.charged) == (0, 1)


def test_where_the_log_has_nothing_the_model_is_charged_times_the_drift():
    costs = costs_of([2, 2], [0.012, 0.012])
    assert Drift(costs, MODEL)(0.0) == pytest.approx(2.0)
    assert OwnCosts(costs, MODEL)(decodes(2), 50.0) == pytest.approx(0.012)


def test_a_fit_to_a_run_has_the_run_s_sum_and_its_slope():
    rng = np.random.default_rng(1)
    batches = rng.integers(1, 5, 400).tolist()
    true = np.array([MODEL.predict(decodes(count)) for count in batches])
    seconds = true * rng.lognormal(0, 0.05, 400)
    seconds[::50] *= 20  # stalls must not bend it
    costs = costs_of(batches, seconds.tolist())
    model = fit_costs(costs)
    predicted = np.array([model.predict(decodes(count)) for count in batches])
    assert predicted.sum() == pytest.approx(seconds.sum(), rel=1e-4)
    ratio = model.predict(decodes(4)) / model.predict(decodes(1))
    assert ratio == pytest.approx(MODEL.predict(decodes(4)) / MODEL.predict(decodes(1)), rel=0.05)


def test_the_nearest_canary_is_the_one_charged():
    assert nearest_canary(NO_CANARY) is None
    took = nearest_canary(pd.DataFrame({"begin_s": [0.0, 1.0], "end_s": [0.004, 1.006]}))
    assert took is not None
    assert took(0.4) == pytest.approx(0.004) and took(9.0) == pytest.approx(0.006)
