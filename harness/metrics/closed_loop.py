"""Requests in a closed loop: as one ends the next begins, so that a fixed number is in flight (OmniInfer section 5).

Over a window between ramp and drain: it begins when the first requests, which all came at once, have been replaced,
and ends when none is left to replace one.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.metrics.requests import COMPLETED

RAMP = 2.0
"""Mean requests' lengths before the window, where all come at once. [chosen]"""

STAGGERED_RAMP = 2.0
"""The same where they come one by one, by a rate a little above what is served, until as many are there. [chosen] Ages
are then those of the steady state up to the time since the start, few requests are longer, and what queued has gone."""


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """What was measured of the `n` requests that ended in the window.

    `qpm`: requests per minute. `in_flight`: mean number, counted; `littles_law`: the same as throughput times mean
    time, which agrees where the load is steady. Times in s; `tpot_*`: of requests, each one's mean.
    """

    begin_s: float
    end_s: float
    n: int
    qpm: float
    in_flight: float
    littles_law: float
    e2e_mean_s: float
    e2e_p99_s: float
    ttft_mean_s: float
    ttft_p99_s: float
    tpot_mean_s: float
    tpot_p99_s: float
    output_tps: float

    def per_two_nodes(self, nodes: int) -> float:
        """Requests per minute as OmniInfer's tables have them: of two nodes of those that there are."""
        return self.qpm * 2 / nodes

    @property
    def lengths(self) -> float:
        """Mean requests' lengths that the window lasts."""
        return (self.end_s - self.begin_s) / self.e2e_mean_s


def closed_loop(requests: pd.DataFrame, ramp: float = RAMP) -> ClosedLoop | None:
    """Measures a closed loop by its request table; `ramp`: mean lengths before the window. None where the run was too
    short for one.
    """
    columns = ("turn_start_s", "completion_s", "e2e_s", "ttft_s", "tbt_mean_s", "generated_entry")
    start, end, e2e, ttft, tpot, tokens = (
        requests[name].to_numpy(float, na_value=np.nan) for name in columns
    )
    done = np.asarray(requests["status"], str) == COMPLETED
    if not done.any():
        return None
    begin_s, end_s = float(start.min() + ramp * np.nanmean(e2e)), float(start.max())
    inside = done & (end > begin_s) & (end <= end_s)
    if end_s <= begin_s or not inside.any():
        return None
    seconds, n = end_s - begin_s, int(inside.sum())
    flying = np.clip(end, begin_s, end_s) - np.clip(start, begin_s, end_s)
    return ClosedLoop(
        begin_s,
        end_s,
        n,
        qpm=60 * n / seconds,
        in_flight=float(np.nansum(flying) / seconds),
        littles_law=float(n / seconds * e2e[inside].mean()),
        e2e_mean_s=float(e2e[inside].mean()),
        e2e_p99_s=float(np.percentile(e2e[inside], 99)),
        ttft_mean_s=float(ttft[inside].mean()),
        ttft_p99_s=float(np.percentile(ttft[inside], 99)),
        tpot_mean_s=float(np.nanmean(tpot[inside])),
        tpot_p99_s=float(np.nanpercentile(tpot[inside], 99)),
        output_tps=float(tokens[inside].sum() / seconds),
    )
