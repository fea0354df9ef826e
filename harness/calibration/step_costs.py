"""The cost of each step of a real run, and how virtual time is charged with it.

A step's cost runs from the end of the step before it (after a pause of the loop: from its own call of `schedule`) to
its end: update, delivery, scheduling, hand-over, forward, sampling and the clients' share of the same cores. Between
the same two points the loop on the virtual clock takes no time, and at both it looks for arrivals.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from engines.core.device import Row
from engines.devices.step_time import SEGMENTED, StepTime, Totals, terms, totals
from harness.calibration.fit import Sample, fit, knots

WINDOW_S = 1.0
"""Half the window over which drift is averaged, and the farthest that a logged step is taken from."""

TOTALS = ("requests", "tokens", "samples", "pairs", "visible")

CONTENT_WEIGHT, UNLIKE_S = 20.0, 1e-4
"""[chosen] A step of another length counts as 20 times the difference farther away in time, and one of other counts by
2 ms more."""


def step_costs(steps: pd.DataFrame, seen: pd.DataFrame, canaries: pd.DataFrame) -> pd.DataFrame:
    """One row a step: begin_s, end_s, seconds (canary left out), device_s (hand-over to tokens) and its `TOTALS`.

    `steps`: a run's step table (`harness.events.log`) of one stage. `seen`: begin_s, end_s and `TOTALS` of its steps
    at the device. `canaries`: begin_s, end_s. ValueError when the two logs are not of the same steps.
    """
    ran = steps[steps["requests"] > 0].reset_index(drop=True)
    if not np.array_equal(np.asarray(ran["requests"]), np.asarray(seen["requests"])):
        raise ValueError(f"the loop logged {len(ran)} steps and its device {len(seen)}, not the same ones")
    begin_s = np.array(ran["t_s"], float)
    end_s = begin_s + np.asarray(ran["dt_s"])
    left = np.asarray(ran["running"] + ran["waiting"]) > 0
    begin_s[1:] = np.where(left[:-1], end_s[:-1], begin_s[1:])
    canary_s = np.zeros(len(ran))
    of_step = np.searchsorted(end_s, canaries["end_s"].to_numpy())
    np.add.at(canary_s, of_step, (canaries["end_s"] - canaries["begin_s"]).to_numpy())
    return pd.DataFrame(
        {
            "begin_s": begin_s,
            "end_s": end_s,
            "seconds": end_s - begin_s - canary_s,
            "device_s": seen["end_s"] - seen["begin_s"],
            **{name: seen[name] for name in TOTALS},
        }
    )


def fit_costs(costs: pd.DataFrame) -> StepTime:
    """The segmented form fitted to a run's own steps; the sum of its predictions is the sum measured.

    Steps of about the same content (eight to a doubling) are one cell, of which the fit takes the median.
    """
    values = costs[list(TOTALS)].to_numpy(float)
    cells = np.round(8 * np.log2(1 + values[:, [0, 1, 4]])).astype(int).tolist()
    samples = [
        Sample(tuple(cell), Totals(*held), seconds, at_s, 0.0)
        for cell, held, seconds, at_s in zip(
            cells, values.tolist(), costs["seconds"].tolist(), costs["begin_s"].tolist(), strict=True
        )
    ]
    return StepTime(fit(samples, terms(SEGMENTED, knots(samples))))


def predicted(costs: pd.DataFrame, model: StepTime) -> np.ndarray:
    """Seconds of each of the run's steps by `model`."""
    return np.array([model.seconds(Totals(*held)) for held in costs[list(TOTALS)].to_numpy(float).tolist()])


class Drift:
    """How much slower than `model` the run was around a time: measured over predicted, within `WINDOW_S`."""

    def __init__(self, costs: pd.DataFrame, model: StepTime) -> None:
        self._at_s = costs["begin_s"].to_numpy()
        self._measured = np.concatenate([[0.0], np.cumsum(costs["seconds"])])
        self._predicted = np.concatenate([[0.0], np.cumsum(predicted(costs, model))])

    def __call__(self, now: float) -> float:
        low, high = np.searchsorted(self._at_s, [now - WINDOW_S, now + WINDOW_S])
        if low == high:
            low, high = 0, len(self._at_s)
        return float(
            (self._measured[high] - self._measured[low]) / (self._predicted[high] - self._predicted[low])
        )


class OwnCosts:
    """Charges the run's own costs, each once: of the step nearest in time and in content, plus the difference that
    `model` sees between the two contents, times the drift.

    Virtual and real steps hold the same until a request joins one step earlier or later; then the difference is small
    and a stall of the machine in that step stays in. With nothing left within `WINDOW_S`: the model times the drift.
    """

    def __init__(self, costs: pd.DataFrame, model: StepTime) -> None:
        self._model = model
        self._drift = Drift(costs, model)
        self._begin_s = costs["begin_s"].to_numpy()
        self._seconds = costs["seconds"].to_numpy()
        self._predicted = predicted(costs, model)
        self._content = costs[["requests", "tokens", "samples"]].to_numpy(int)
        self._left = np.ones(len(costs), bool)
        self.matched = 0
        self.charged = 0

    def __call__(self, rows: Sequence[Row], now: float) -> float:
        total = totals(rows)
        self.charged += 1
        expected = self._model.seconds(total)
        low, high = np.searchsorted(self._begin_s, [now - WINDOW_S, now + WINDOW_S])
        near = low + np.flatnonzero(self._left[low:high])
        if not len(near):
            return expected * self._drift(now)
        content = (total.requests, total.tokens, total.samples)
        unlike = np.abs(self._predicted[near] - expected) + UNLIKE_S * (self._content[near] != content).any(
            axis=1
        )
        chosen = near[np.argmin(np.abs(self._begin_s[near] - now) + CONTENT_WEIGHT * unlike)]
        self._left[chosen] = False
        self.matched += bool((self._content[chosen] == content).all())
        seconds = self._seconds[chosen] + (expected - self._predicted[chosen]) * self._drift(now)
        return float(max(seconds, 0.1 * expected))


class ModelCosts:
    """Charges `model` times a constant `factor`."""

    def __init__(self, model: StepTime, factor: float = 1.0) -> None:
        self._model = model
        self._factor = factor

    def __call__(self, rows: Sequence[Row], now: float) -> float:
        return self._model.predict(rows) * self._factor


def nearest_canary(canaries: pd.DataFrame):
    """Return the function time (s) -> seconds that the canary nearest in time took; None without canaries."""
    if canaries.empty:
        return None
    at_s = canaries["begin_s"].to_numpy()
    took_s = (canaries["end_s"] - canaries["begin_s"]).to_numpy()
    return lambda now: float(took_s[np.abs(at_s - now).argmin()])
