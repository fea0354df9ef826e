"""Where the parts of a guidellm sweep meet, from arrivals alone: one at a time, as many as go, then constant rates.

guidellm begins a part only when all requests of the one before have ended, and takes its time for it. So a part begins
where the server has stood empty for a while, with a request after which the next comes at another rhythm. Requests that
the server refused are not seen: a gap may be several periods long.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from harness.truth.seen import ALL_AT_ONCE, ONE_AT_A_TIME, WHOLE, Part, Seen, rate_label

PAUSE_S = 1.0
"""Shorter than guidellm's pauses between parts (2 s and more), longer than the jitter of arrivals (0.02 s)."""
LOOK = 3
"""Gaps of which the shortest is the period: three refused in a row would be one too many."""
OFF = 0.03
"""Of a period: gaps of one rhythm differ by less from a whole number of periods (they do so by 0.01)."""


def split(seen: Sequence[Seen], most: int | None) -> list[Part]:
    """Parts of requests that are in the order of arrival. `most`: requests of a part, where that is known.

    One part of all of them where they are no such sweep: an end is not known, or a part would have more than `most`.
    """
    if any(one.e2e_s is None for one in seen):
        return [Part(WHOLE, tuple(seen))]
    starts = np.array([one.start_s for one in seen])
    ends = np.maximum.accumulate([one.start_s + (one.e2e_s or 0.0) for one in seen])
    empty = np.flatnonzero(starts[1:] - ends[:-1] >= PAUSE_S) + 1
    busy = np.flatnonzero(starts[1:] < ends[:-1]) + 1
    single = int(busy[0]) - 1 if len(busy) else len(seen)
    many = int(next((at for at in empty if at > single), len(seen)))
    cuts = sorted({0, single, many, *_rhythms(starts, empty[empty > many], many), len(seen)})
    parts = [
        Part(_label(first, single, many, starts[first:end]), tuple(seen[first:end]))
        for first, end in pairwise(cuts)
    ]
    fits = most is None or all(len(part.seen) <= most for part in parts)
    return parts if fits else [Part(WHOLE, tuple(seen))]


def _rhythms(starts: np.ndarray, empty: Sequence[int] | np.ndarray, first: int) -> list[int]:
    """Those of `empty` after which the next request comes at another period than since the cut before."""
    cuts = []
    for at in map(int, empty):
        gaps, after = np.diff(starts[first:at][: LOOK + 1]), np.diff(starts[at : at + 2])
        if len(gaps) and len(after) and _off(float(after[0]) / float(gaps.min())):
            cuts.append(at)
            first = at
    return cuts


def _off(periods: float) -> bool:
    return abs(periods - round(periods)) > OFF


def _label(first: int, single: int, many: int, starts: np.ndarray) -> str:
    if first < single:
        return ONE_AT_A_TIME
    if first < many:
        return ALL_AT_ONCE
    gaps = np.diff(starts)
    return rate_label(1 / float(np.median(gaps[gaps < 1.5 * gaps.min()]))) if len(gaps) else WHOLE
