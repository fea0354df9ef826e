"""The latency wall: the step after which every Step waits as long as it may, because somebody never speaks.

Metronome, Figures 1 and 4; defined in part 4 of the specification.
"""

import numpy as np
import pandas as pd

from harness.metrics.frame_table import Beat

BUCKET_S = 10.0
"""Length of the buckets of elapsed time in which latency is judged, as in the paper's figures."""

AT_WALL = 0.95
"""Share of the longest wait from which a latency counts as the wall: 1.52 s of 1.6 s at B = 2 s."""

PERCENTILES = (50, 90, 99)


def bucket_latencies(frames: pd.DataFrame) -> pd.DataFrame:
    """Return latency by elapsed time: columns t_s (begin of the bucket), n, p50, p90 and p99 in s; first frames
    included.

    `frames` is a frame table. A frame belongs to the bucket in which its Step was dispatched. Buckets without frames
    are left out, and a last bucket with frames in less than half of it is part of the one before.
    """
    dispatch_s, latency_s = np.asarray(frames["dispatch_s"]), np.asarray(frames["latency_s"])
    order = np.argsort(dispatch_s, kind="stable")
    order = order[~np.isnan(latency_s[order])]
    dispatch_s, latency_s = dispatch_s[order], latency_s[order]
    buckets = _buckets(dispatch_s, BUCKET_S)
    begins = np.flatnonzero(np.diff(buckets, prepend=-1))
    rows = [
        (BUCKET_S * buckets[begin], len(part), *np.percentile(part, PERCENTILES))
        for begin, part in zip(begins, np.split(latency_s, begins)[1:], strict=True)
    ]
    return pd.DataFrame(rows, columns=["t_s", "n", *(f"p{p}" for p in PERCENTILES)])


def time_of_wall(frames: pd.DataFrame, beat: Beat) -> float | None:
    """Return when the run hit the wall, in s; None when it did not.

    A run walls iff the median latency of some 10 s bucket and of all later ones, to the last, is at least 0.95 of the
    longest wait. The time is that of the first Step in the first such bucket which took as long.
    """
    level_s = AT_WALL * beat.cap_s
    buckets = bucket_latencies(frames)
    below = np.flatnonzero(np.asarray(buckets["p50"]) < level_s)
    first = int(below[-1]) + 1 if below.size else 0
    if first >= len(buckets):
        return None
    latency_s, dispatch_s = np.asarray(frames["latency_s"]), np.asarray(frames["dispatch_s"])
    begin_s = np.asarray(buckets["t_s"])[first]
    return float(dispatch_s[(latency_s >= level_s) & (dispatch_s >= begin_s)].min())


def _buckets(dispatch_s: np.ndarray, bucket_s: float) -> np.ndarray:
    buckets = (dispatch_s // bucket_s).astype(np.int64)
    if buckets.size and dispatch_s[-1] - buckets[-1] * bucket_s < bucket_s / 2 and buckets[0] < buckets[-1]:
        buckets[buckets == buckets[-1]] -= 1
    return buckets
