"""When the sessions of a trace begin."""

import numpy as np

from workloads.trace import Trace


def starts(trace: Trace) -> np.ndarray:
    columns = trace.columns()
    return columns["arrival_s"][columns["turn"] == 0]
