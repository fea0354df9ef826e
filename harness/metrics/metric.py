"""Metrics, and the few ways in which one is made of values, NaN where one is missing."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any

import numpy as np

from harness.metrics.definitions import Definition
from harness.metrics.metric_name import in_class, parsed, quantile_of

Measured = tuple[float | None, int, int]
"""Value, n and missing of a metric, before the unit of its definition joins them."""
Result = Measured | np.ndarray
"""A metric as it was measured; or the values of a quantity. Several metrics are statistics of them."""
Measure = Callable[[Any], Mapping[str, Result]]
"""From a run to what is measured together, by the name of the metric or the quantity."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One number: `value` is None when nothing was measured, never 0 in its place."""

    value: float | None
    unit: str
    n: int
    """Observations behind the value."""
    missing: int
    """Observations that belong to it and were not made."""
    values: np.ndarray | None = field(default=None, compare=False, repr=False)
    """The observations, NaN for a missing one; None for what is no statistic of them."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as records have it."""
        return {"value": self.value, "unit": self.unit, "n": self.n, "missing": self.missing}


def metrics_of(run: Any, vocabulary: Mapping[str, Definition], measures: Iterable[Measure]) -> dict[str, Metric]:
    """Return every metric of a vocabulary in its order, each with its unit.

    `measures` take `run`, which may be the values by name, with `dict` to take them. KeyError for a metric that none of
    them measures.
    """
    measured = {name: value for measure in measures for name, value in measure(run).items()}
    return {
        name: _metric(measured[measured_as(name, meaning)], meaning.statistic, meaning.unit)
        for name, meaning in vocabulary.items()
    }


def by_class(measured: Mapping[str, Result], definitions: Mapping[str, Definition]) -> dict[str, Metric]:
    """Return metrics of classes, and of none, as far as they were measured; the definitions name no class. ValueError
    for a result without a definition."""
    vocabulary = {
        in_class(name, metric): meaning
        for name in dict.fromkeys(parsed(each).request_class for each in measured)
        for metric, meaning in definitions.items()
        if in_class(name, measured_as(metric, meaning)) in measured
    }
    if unknown := measured.keys() - {measured_as(*each) for each in vocabulary.items()}:
        raise ValueError(f"metric {min(unknown)} has no definition")
    return metrics_of(measured, vocabulary, [dict])


def measured_as(name: str, meaning: Definition) -> str:
    """Return the name by which a measure returns a metric."""
    return parsed(name).family if meaning.statistic else name


def _metric(result: Result, which: str, unit: str) -> Metric:
    values = result if isinstance(result, np.ndarray) else None
    value, n, missing = statistic(result, which) if isinstance(result, np.ndarray) else result
    return Metric(value, unit, n, missing, values)


def another_percentile(name: str, metrics: Mapping[str, Metric]) -> Metric | None:
    """Return a percentile of the values that some of these metrics are statistics of; None where none is."""
    asked = parsed(name)
    for other, metric in metrics.items():
        if metric.values is not None and asked.quantile and parsed(other).family == asked.family:
            return _metric(metric.values, asked.statistic, metric.unit)
    return None


def without_nan(values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values)]


def statistic(values: np.ndarray, name: str) -> Measured:
    """Return `mean`, `sum`, `max` or a percentile (by linear interpolation) of the known values. A value may be
    infinite, as the latency of a turn that failed."""
    present, q, value = without_nan(values), quantile_of(name), None
    if present.size:
        whole = {"mean": np.mean, "sum": np.sum, "max": np.max}
        value = float(whole[name](present)) if q is None else quantile(present, float(q))
    return value, int(present.size), int(values.size - present.size)


def quantile(values: np.ndarray, q: float) -> float:
    """Return the quantile by linear interpolation, infinite where it lies above the largest finite value."""
    finite = np.sort(values[np.isfinite(values)])
    if finite.size == values.size:
        return float(np.quantile(values, q))
    rank = q * (values.size - 1)
    above = ceil(rank)
    return inf if above >= finite.size else float(np.interp(rank, np.arange(finite.size), finite))


def share(flags: np.ndarray) -> Measured:
    """Return the share of True; a missing flag does not apply."""
    return statistic(without_nan(flags.astype(float)), "mean")
