"""The parts of a guidellm sweep, from arrivals alone: one request at a time, then as many as possible, then constant or
Poisson rates.

guidellm begins a part only when all requests of the one before have ended, and takes its time for it. So a part begins
where the server has stood empty for a while. Of all such places those are taken that make the arrivals most likely: a
part is constant, perhaps with a burst at its beginning, or Poisson. Requests that the server refused are not seen: a
gap may be several periods long.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from harness.measured_runs.measured_run import ALL_AT_ONCE, ONE_AT_A_TIME, WHOLE, Part, Request, rate_label

PAUSE_S = 1.0
"""Shorter than guidellm's pauses between parts (2 s and more), longer than the jitter of arrivals (0.02 s)."""
JITTER_S, JITTER = 0.01, 0.003
"""Mean distance of a constant part's gap from whole periods: seconds, and a share of the period."""
REFUSED, IRREGULAR = 2.0, 6.0
"""Costs (negative logarithms of probabilities) of a request that is missing and of a gap that fits nothing. [chosen]"""
CUT = 10.0
"""Cost of one part more: above that of one irregular gap, and of the longest of some hundred Poisson gaps. [chosen]"""
FEWER, FEWEST = 0.5, 2.5
"""Costs of a part for each request fewer than was asked for, and at most: a part may also end by time. [chosen]"""


def split(seen: Sequence[Request], most: int | None) -> list[Part]:
    """Split requests in the order of arrival into parts. `most`: requests of a part, where known.

    They are one part where they are not such a sweep: an end is not known, or a part would have more than `most`.
    """
    whole = [Part(WHOLE, tuple(seen))]
    if any(one.e2e_s is None for one in seen):
        return whole
    starts = np.array([one.arrival_s for one in seen])
    ends = np.maximum.accumulate([one.arrival_s + (one.e2e_s or 0.0) for one in seen])
    empty = np.flatnonzero(starts[1:] - ends[:-1] >= PAUSE_S) + 1
    busy = np.flatnonzero(starts[1:] < ends[:-1]) + 1
    single = int(busy[0]) - 1 if len(busy) else len(seen)
    many = int(next((at for at in empty if at > single), len(seen)))
    cuts = sorted({0, single, many, *_likeliest(starts, [many, *map(int, empty[empty > many])], most)})
    parts = [
        Part(_label(first, single, many, starts[first:end]), tuple(seen[first:end]))
        for first, end in pairwise([*cuts, len(seen)])
        if end > first
    ]
    fits = most is None or all(len(part.requests) <= most for part in parts)
    return parts if fits else whole


def _likeliest(starts: np.ndarray, places: Sequence[int], most: int | None) -> list[int]:
    """Return the items of `places` at which parts begin, in the cheapest split of the arrivals. The first part begins
    at the first place."""
    if places[0] == len(starts):
        return []
    best, before, open_places = {places[0]: 0.0}, {}, [places[0]]
    for end in [*places[1:], len(starts)]:
        costs = {
            begin: best[begin] + CUT + _cost(np.diff(starts[begin:end])) + _fewer(end - begin, most)
            for begin in open_places
        }
        before[end] = min(costs, key=costs.__getitem__)
        best[end] = costs[before[end]]
        # A place from which it costs more than from a later one is never the better one again.
        open_places = [begin for begin in open_places if costs[begin] <= best[end] + 2 * CUT] + [end]
    cuts, at = [], len(starts)
    while at in before:
        at = before[at]
        cuts.append(at)
    return cuts


def _fewer(count: int, most: int | None) -> float:
    if most is None:
        return 0.0
    return math.inf if count > most else min(FEWEST, FEWER * (most - count))


def _cost(gaps: np.ndarray) -> float:
    return min(_constant(gaps)[0], _poisson(gaps)) if len(gaps) else 0.0


def _poisson(gaps: np.ndarray) -> float:
    """Return the negative log-likelihood of the gaps under a Poisson process."""
    return len(gaps) * (1 + math.log(max(float(gaps.mean()), JITTER_S)))


def _constant(gaps: np.ndarray) -> tuple[float, float]:
    """Return the same under one request a period, after a burst and a first gap of any length; and the period."""
    at_once = min(4 * JITTER_S, float(np.quantile(gaps, 0.75)) / 4)
    burst = int(np.argmax([*(gaps > at_once), True]))
    rest = gaps[burst:]
    if not len(rest):
        return burst * math.log(2 * JITTER_S), math.inf
    later = rest[1:] if len(rest) > 1 else rest
    period = float(np.median(later))
    period = float(np.median(later / np.maximum(1, np.round(later / period))))
    spread = JITTER_S + JITTER * period
    count = np.maximum(1, np.round(rest / period))
    off = np.minimum(np.abs(rest - count * period) / spread, IRREGULAR) + REFUSED * (count - 1)
    return float(off.sum()) + len(rest) * math.log(2 * spread) + burst * math.log(2 * JITTER_S), period


def _label(first: int, single: int, many: int, starts: np.ndarray) -> str:
    if first < single:
        return ONE_AT_A_TIME
    if first < many:
        return ALL_AT_ONCE
    gaps = np.diff(starts)
    if not len(gaps):
        return WHOLE
    cost, period = _constant(gaps)
    return rate_label(1 / period) if cost <= _poisson(gaps) else f"{rate_label(1 / gaps.mean())}, Poisson"
