"""Prometheus histograms and counters of a run: what a server observed between two of its answers."""

import json
from dataclasses import dataclass
from math import inf

import numpy as np
import pandas as pd

from harness.metrics.histogram import quantile


@dataclass(frozen=True)
class Observed:
    """A histogram between two answers. `counts` of observations up to each of `bounds` (ascending, in the histogram's
    unit), and beyond the last. `total`: their sum; None where the server does not report it. `first_s` and `last_s`:
    times of the two answers."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float | None
    first_s: float
    last_s: float

    @property
    def n(self) -> int:
        return round(sum(self.counts))

    @property
    def mean(self) -> float | None:
        """The exact mean, as the sum does not come from buckets."""
        return self.total / self.n if self.n and self.total is not None else None

    def quantile(self, q: float) -> float | None:
        """Return the quantile, interpolated within its bucket; None of nothing."""
        return quantile(self.bounds, self.counts, q)

    def bucket(self, q: float) -> tuple[float, float] | None:
        """Return the bounds of the quantile's bucket, between which it is not known; None of nothing."""
        if not self.n:
            return None
        at = int(np.searchsorted(np.cumsum(self.counts), q * sum(self.counts) - 1e-9))
        edges = (0.0, *self.bounds, inf)
        return edges[at], edges[at + 1]


def grown(scrape: pd.DataFrame, name: str, begin_s: float = -inf, end_s: float = inf) -> float | None:
    """Return how much counter `name` grew over all labels together, between answers as of `observed`. None unless the
    server reported it twice without a restart in between."""
    values = scrape.loc[np.asarray(scrape["name"], str) == name].groupby("t_s")["value"].sum().sort_index()
    between = _between(values.index.to_numpy(float), begin_s, end_s)
    if between is None:
        return None
    during = float(values.iloc[between[1]] - values.iloc[between[0]])
    return during if during >= 0 else None


def _between(polls_s: np.ndarray, begin_s: float, end_s: float) -> tuple[int, int] | None:
    """Return the last of the ascending times before `begin_s` and the first after `end_s`; None unless they are two."""
    first = max(0, int(np.searchsorted(polls_s, begin_s, side="right")) - 1)
    last = min(polls_s.size - 1, int(np.searchsorted(polls_s, end_s)))
    return (first, last) if last > first else None


def observed(scrape: pd.DataFrame, name: str, begin_s: float = -inf, end_s: float = inf) -> Observed | None:
    """Return the observations from the last answer before `begin_s` to the first after `end_s`, over all labels of
    histogram `name` together. None unless the server reported it twice without a restart in between. `scrape`: columns
    t_s, name, labels, value, as `harness.live.run.scrape` leaves them."""
    names = np.asarray(scrape["name"], str)
    buckets = scrape.loc[names == f"{name}_bucket"]
    bounds = [float(json.loads(labels)["le"]) for labels in buckets["labels"].astype(str)]
    counts = buckets.assign(le=bounds).pivot_table(index="t_s", columns="le", values="value", aggfunc="sum")
    counts = counts.sort_index(axis=1)
    polls_s = counts.index.to_numpy(float)
    between = _between(polls_s, begin_s, end_s)
    if between is None:
        return None
    first, last = between
    during = np.diff((counts.iloc[last] - counts.iloc[first]).to_numpy(float), prepend=0.0)
    if (during < 0).any():
        return None
    sums = scrape.loc[names == f"{name}_sum"].groupby("t_s")["value"].sum()
    has_sums = polls_s[first] in sums.index and polls_s[last] in sums.index
    return Observed(
        tuple(counts.columns[:-1].to_numpy(float).tolist()),
        tuple(during.tolist()),
        float(sums[polls_s[last]] - sums[polls_s[first]]) if has_sums else None,
        float(polls_s[first]),
        float(polls_s[last]),
    )
