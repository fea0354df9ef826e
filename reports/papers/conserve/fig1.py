"""Fig. 1: how a service's load swings, as BurstGPT's does."""

import numpy as np

from reports.claims.bands import of_digits
from reports.claims.quantities import value
from reports.claims.stated import claim, times
from reports.papers.conserve.loads import alone, at
from reports.papers.conserve.systems import ONLINE_ONLY
from reports.runs.measured import Measured

TITLE = "Fig. 1: bursts of an online service within ten minutes"

_LOAD = "an hour"
_WINDOW_S, _BIN_S = 600.0, 60.0
EXPERIMENTS = {
    f"{_LOAD}: online alone": alone(
        "an hour", deployment="llama_8b_h100", rate=0.5, requests=1800, online="burstgpt", chat="burstgpt"
    )
}
QUICK = {"requests": "300"}


def swing(point: Measured) -> float | None:
    """The most requests of a minute over the mean of the ten minutes around it; the largest in the trace."""
    arrivals = point.record.trace().columns()["arrival_s"]
    counts = np.bincount((arrivals // _BIN_S).astype(int)).astype(float)[:-1]
    width = int(_WINDOW_S // _BIN_S)
    if len(counts) < width:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(counts, width)
    return float((windows.max(axis=1) / windows.mean(axis=1)).max())


CLAIMS = {
    "fig1-swing": claim(
        "load rises up to 3 × within ten minutes",
        times(3.0, within=of_digits(1.0)),
        value(swing, at(_LOAD, ONLINE_ONLY)),
        "× {ours:.2f}: arrivals come from a process fitted to BurstGPT's first day, not from its log",
    )
}
