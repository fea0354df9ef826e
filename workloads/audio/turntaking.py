"""Times at which people begin to speak: gaps, overlaps, backchannels and barge-ins, from published statistics.

An offset is the time from the end of one speaker's turn to the begin of the other's; negative is an overlap.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class Published:
    """A number, where it is from, and whether the source's text was at hand to check it against."""

    value: float
    source: str
    verified: bool


LEVINSON = "Levinson and Torreira 2015, Front. Psychol. 6:731"
OVERLAP_SHARE = Published(0.40, "share of turn changes: Heldner and Edlund 2010", False)
GAP_MEDIAN_S = Published(0.2, f"gaps 'of the order of 200 ms': {LEVINSON}, abstract", True)
GAP_SIGMA = Published(0.8, "choice: log-spread as of pauses between turns, skewed in every corpus", False)
OVERLAP_MEDIAN_S = Published(0.205, f"Switchboard overlaps, median: {LEVINSON}", False)
OVERLAP_SIGMA = Published(0.77, f"lognormal (Laskowski 2012, verified) of mean 0.275 s ({LEVINSON})", False)
BACKCHANNEL_MEDIAN_S = Published(0.36, "median of backchannels: Czech corpus, Speech Prosody 2014", True)
BACKCHANNEL_SIGMA = Published(0.4, "choice", False)
# What the model gives and was not fitted to: the verified median of all offsets.
CANDOR_MEDIAN_OFFSET_S = Published(0.08, "median interval between speakers: CANDOR corpus", True)


def gaps(rng: np.random.Generator, n: int) -> np.ndarray:
    """n silences in s between two turns that do not overlap, shape (n,): lognormal, median 0.2 s."""
    return GAP_MEDIAN_S.value * np.exp(GAP_SIGMA.value * rng.standard_normal(n))


def overlaps(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return overlaps of n turns with the end of the other's turn, in s, shape (n,): lognormal, median 0.205 s."""
    return OVERLAP_MEDIAN_S.value * np.exp(OVERLAP_SIGMA.value * rng.standard_normal(n))


def offsets(rng: np.random.Generator, n: int, overlap_share: float = OVERLAP_SHARE.value) -> np.ndarray:
    """n offsets in s, shape (n,): minus an overlap with probability `overlap_share`, else a gap.

    Each offset takes one draw of every kind, so a larger share keeps the overlaps of a smaller one.
    """
    u, late, early = rng.random(n), gaps(rng, n), overlaps(rng, n)
    return np.where(u < overlap_share, -early, late)


def cuts(
    rng: np.random.Generator,
    p: float,
    replies_s: np.ndarray,
    durations_s: np.ndarray,
    policy: Literal["natural", "truncate"],
) -> np.ndarray:
    """Return the times of interruptions, in s after the reply's first audio, shape of `replies_s`; NaN: none.

    Each turn draws u ~ U(0, 1) and barges in iff u < p, at X from `durations_s`, a sample of the distribution of
    reply lengths (LiveServe, evaluation set-up). natural: X may lie beyond the own reply's end, and then comes too
    late. truncate: X given X < own length. X is a quantile of the same draw for both policies and every p.
    """
    u, v = rng.random(len(replies_s)), rng.random(len(replies_s))
    durations_s = np.sort(durations_s)
    shorter = np.searchsorted(durations_s, replies_s)
    if policy == "natural":
        cut_s = durations_s[(v * len(durations_s)).astype(int)]
    else:
        # A reply shorter than the whole sample is cut uniformly within itself.
        cut_s = np.where(shorter > 0, durations_s[(v * shorter).astype(int)], v * replies_s)
    return np.where(u < p, cut_s, np.nan)
