"""Rates of completions: the time that they are over, and the runs that are too short for one."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import numpy as np

from harness.request_tables.steady_window import Window

LEAST_COMPLETIONS, LEAST_REQUESTS = 30, 3.0
"""[chosen] Completions, and mean times of a request, below which a window gives no rate: with 30 completions the
standard error is about a fifth."""

RATE = (
    f"missing from fewer than {LEAST_COMPLETIONS} completions, and where the window is shorter than {LEAST_REQUESTS:g} "
    "mean requests"
)
"""Part of the definition of every rate of completions."""

Span = tuple[float, float]
"""Begin and end of the time that a rate is over, s of the run."""


def rate_span(turns: Mapping[str, np.ndarray], window: Window, run_end_s: float) -> Span | None:
    """Return the time that the rates of a run are over: its steady window, or, where that is whole, from the first
    start of one of its `turns` to its end. None where it has no length."""
    begin_s = max(window.begin_s, float(turns["turn_start_s"].min(initial=inf)))
    end_s = min(window.end_s, run_end_s)
    return (begin_s, end_s) if end_s > begin_s else None


def is_rate(turns: Mapping[str, np.ndarray], inside: np.ndarray, span: Span) -> bool:
    """Return whether turns that completed `inside` a span give a rate: there are `LEAST_COMPLETIONS`, and the span is
    as long as `LEAST_REQUESTS` of them on average."""
    if inside.sum() < LEAST_COMPLETIONS:
        return False
    lasted_s = (turns["completion_s"] - turns["turn_end_s"])[inside]
    return bool(span[1] - span[0] >= LEAST_REQUESTS * np.nanmean(lasted_s))


def within(completion_s: np.ndarray, span: Span | None) -> np.ndarray:
    """Return which of these times, s, are inside the span."""
    if span is None:
        return np.zeros(completion_s.size, bool)
    # A steady window opens with the end of a request, which therefore is not counted in it.
    return (completion_s > span[0]) & (completion_s <= span[1])
