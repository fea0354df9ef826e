"""What a run drew, of the machine's own energy counters: for a turn, for a minute that was heard, and at rest."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from harness.metrics.definitions import Definition
from harness.metrics.metric import Metric
from harness.metrics.requests import BARGED_IN, COMPLETED

_ALL = "over all counters that power names"
_RUN = "from the start of the run to its end"
_ABOVE = "what is drawn at rest taken off for as long as the run lasted"

POWER_DEFINITIONS: dict[str, Definition] = {
    "idle_power": Definition(
        "W", f"mean power before the run, while nothing was served, {_ALL}", "for 5 s before it", None
    ),
    "mean_power": Definition("W", f"mean power during the run, {_ALL}", _RUN, None),
    "energy": Definition("J", f"energy drawn during the run, {_ALL}", _RUN, None),
    "energy_per_turn": Definition(
        "J", "energy over the turns that ended or were cut short by their user", _RUN, "lower"
    ),
    "active_energy_per_turn": Definition("J", f"the same, {_ABOVE}", _RUN, "lower"),
    "energy_per_audible_minute": Definition(
        "J", "energy over the minutes of reply that users heard", _RUN, "lower"
    ),
    "active_energy_per_audible_minute": Definition("J", f"the same, {_ABOVE}", _RUN, "lower"),
}
"""Every metric that `power_metrics` returns, in its order."""


def power_metrics(readings: pd.DataFrame, requests: pd.DataFrame, run_end_s: float) -> dict[str, Metric]:
    """`readings` as of `harness.records.power_meter`, `requests` a request table. A value is missing where the readings
    do not span its time, or there is no such turn or sound."""
    at_rest, under_way = (readings.loc[readings["idle"] == idle] for idle in (True, False))
    idle_w, energy_j = _each(at_rest, _mean_w), _each(under_way, lambda t, j: _drawn_j(t, j, run_end_s))
    active_j = None if energy_j is None or idle_w is None else energy_j - idle_w * run_end_s
    turns = minutes = 0.0
    if "turn" in requests:  # frames are no turns
        turns = float(requests["status"].isin([COMPLETED, BARGED_IN]).to_numpy().sum())
        minutes = float(np.nansum(requests["heard_s"].to_numpy(float))) / 60
    values = {
        "idle_power": (idle_w, len(at_rest)),
        "mean_power": (None if energy_j is None else energy_j / run_end_s, len(under_way)),
        "energy": (energy_j, len(under_way)),
        "energy_per_turn": (_over(energy_j, turns), int(turns)),
        "active_energy_per_turn": (_over(active_j, turns), int(turns)),
        "energy_per_audible_minute": (_over(energy_j, minutes), int(turns)),
        "active_energy_per_audible_minute": (_over(active_j, minutes), int(turns)),
    }
    return {name: Metric(value, POWER_DEFINITIONS[name].unit, n, 0) for name, (value, n) in values.items()}


def _each(readings: pd.DataFrame, of: Callable[[np.ndarray, np.ndarray], float | None]) -> float | None:
    """The sum over the counters; None where one of them lacks it."""
    found = [
        of(one["t_s"].to_numpy(float), one["joules"].to_numpy(float))
        for _, one in readings.groupby("counter")
    ]
    known = [each for each in found if each is not None]
    return sum(known) if known and len(known) == len(found) else None


def _mean_w(t_s: np.ndarray, joules: np.ndarray) -> float | None:
    return float((joules[-1] - joules[0]) / (t_s[-1] - t_s[0])) if t_s[-1] > t_s[0] else None


def _drawn_j(t_s: np.ndarray, joules: np.ndarray, end_s: float) -> float | None:
    """From 0 to `end_s`, on the straight line between the readings around each; nothing is read off beyond them."""
    if t_s[0] > 0 or t_s[-1] < end_s:
        return None
    begin_j, end_j = np.interp([0.0, end_s], t_s, joules)
    return float(end_j - begin_j)


def _over(energy_j: float | None, units: float) -> float | None:
    return None if energy_j is None or not units else energy_j / units
