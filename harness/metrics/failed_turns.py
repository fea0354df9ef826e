"""The latency of a turn that failed: it is infinite, so that nothing gets faster by breaking its replies."""

import numpy as np

from harness.request_tables.request_table import FAILED, UNFINISHED


def infinite_where_failed(status: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return a latency of each turn, with infinity for a turn that failed, whatever came before it broke, and for one
    that still had none at the end of the run. Shape (turns,); NaN: left out."""
    return np.where((status == FAILED) | ((status == UNFINISHED) & np.isnan(values)), np.inf, values)
