"""Frame latency and speech before and after a wall, and what their claims do not find."""

import numpy as np

from harness.request_tables.frame_table import BUCKET_S, DELIVERED
from reports.claims.bands import of_digits, of_model
from reports.claims.quantities import Quantity
from reports.figures.frames import latency
from reports.runs.measured import Measured

NO_MISS = "the wait of a Step ends at 0.8 of a period, so by construction no frame can miss when the pool is full"
"""Reason why deadline misses are not a finding."""

CAPPED = "a Step waits at most 0.8 of a period of 2 s, so every wall is at 1.60 s"
"""Reason why the height of the wall is not a finding."""

BELOW_THE_POOL = "a bounded call keeps about 65 blocks, and all calls together fewer than the pool's 32,500"
"""Reason why a bounded run without a wall is not a finding."""

STEP_CALL = "the cost of a Step call was fitted to the 2 to 5 ms of Table 1; its constancy was not"
"""Constant that sets every latency of a healthy run."""

FEW_MS = (0.0, 0.010)
"""Accepted for latencies that are "flat", "a few ms", or "hundreds of times under the budget" of 2 s, in s."""

WHOLE_MS = of_digits(0.001)
"""Band of latencies printed as a range, which has their sampling error in it, or without a spread ("p50/p90 ~5 ms")."""

ONE_RUN = of_model(
    1.96 * 0.14,
    "one run, and runs vary (section 3): the paper's fill rates of 55 and 45 tokens a frame (Fig. 6a and 10) deviate "
    "by 14 % of their mean",
)
"""Band of the time at which the pool is full."""

BURST = "Fig. 4a: for 90 s both policies are flat to N = 160"
"""Fact of claims on two cards."""


def _walled(point: Measured) -> np.ndarray:
    """Return the frames dispatched after the wall; none without a wall."""
    wall_s = point.value("wall_s")
    return point.requests["dispatch_s"].to_numpy() >= (np.inf if wall_s is None else wall_s)


def _latency(point: Measured, among: np.ndarray, percentile: float) -> float | None:
    """A percentile of the latency in s of these frames, without sessions' first ones."""
    frames = point.requests
    latency_s = frames["latency_s"].to_numpy()[among & ~frames["first"].to_numpy()]
    latency_s = latency_s[~np.isnan(latency_s)]
    return float(np.percentile(latency_s, percentile)) if latency_s.size else None


def latency_median(after_wall: bool) -> Quantity:
    """Median frame latency in s after or before the wall."""
    return lambda point: _latency(point, _walled(point) == after_wall, 50)


def latency_percentile(percentile: float, since: float = 0.0, until: float = 1.0) -> Quantity:
    """A percentile of the frame latency in s over a part of the run's time, given as shares of it."""

    def quantity(point: Measured) -> float | None:
        share = point.requests["dispatch_s"].to_numpy() / point.params["duration_s"]
        return _latency(point, (share >= since) & (share <= until), percentile)

    return quantity


def speech_after_wall(point: Measured) -> float | None:
    """Return the share of frames with speech among the frames due after the wall."""
    frames, wall_s = point.requests, point.value("wall_s")
    if wall_s is None:
        return None
    status = frames.loc[frames["judged"] & (frames["due_s"] >= wall_s), "status"]
    return float(np.mean(status == DELIVERED)) if len(status) else None


def worst_bucket(point: Measured) -> float | None:
    """The highest 10 s bucket median of the frame latency in s, without the first bucket.

    All calls begin in it. It holds a few Steps, and those wait for the model's work: the first, and in some runs the
    next, as a call that said a single token has nothing to return yet.
    """
    medians = latency(point).loc[BUCKET_S:].to_numpy()
    return float(medians.max()) if len(medians) else None
