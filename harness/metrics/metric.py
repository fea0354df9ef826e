"""Metrics, and the few ways in which one is made of values, NaN where one is missing."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import ceil, inf
from typing import Any

import numpy as np

from harness.metrics.definitions import Definition

Measured = tuple[float | None, int, int]
"""Value, n and missing of a metric, before the unit of its definition joins them."""
Measure = Callable[[Any], Mapping[str, Measured]]
"""From a run to metrics that are measured together, by name."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One number: `value` is None when nothing was measured, never 0 in its place."""

    value: float | None
    unit: str
    n: int
    """Observations behind the value."""
    missing: int
    """Observations that belong to it and were not made."""


def metrics_of(
    run: Any, vocabulary: Mapping[str, Definition], measures: Iterable[Measure]
) -> dict[str, Metric]:
    """Return every metric of a vocabulary in its order, each with its unit.

    `measures` take `run`, which may be the values by name, with `dict` to take them. KeyError for a metric that none of
    them measures.
    """
    measured = {name: value for measure in measures for name, value in measure(run).items()}
    return {
        name: Metric(value, definition.unit, n, missing)
        for name, definition in vocabulary.items()
        for value, n, missing in [measured[name]]
    }


def known(values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values)]


def statistic(values: np.ndarray, name: str) -> Measured:
    """Return `mean`, `sum`, `max` or p<number> (percentile by linear interpolation) of the known values. A value may be
    infinite, as the latency of a turn that failed."""
    found, value = known(values), None
    if found.size:
        whole = {"mean": np.mean, "sum": np.sum, "max": np.max}.get(name)
        value = percentile(found, float(name[1:])) if whole is None else float(whole(found))
    return value, int(found.size), int(values.size - found.size)


def percentile(values: np.ndarray, percent: float) -> float:
    """Return the percentile by linear interpolation, infinite where it lies above the largest finite value."""
    finite = np.sort(values[np.isfinite(values)])
    if finite.size == values.size:
        return float(np.percentile(values, percent))
    rank = percent / 100 * (values.size - 1)
    above = ceil(rank)
    return inf if above >= finite.size else float(np.interp(rank, np.arange(finite.size), finite))


def share(flags: np.ndarray) -> Measured:
    """Return the share of True; a missing flag does not apply."""
    return statistic(known(flags.astype(float)), "mean")
