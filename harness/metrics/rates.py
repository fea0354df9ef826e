"""Requests per second of the steady-state window of a run (LiveServe section 7.1): all, and the effective ones."""

from collections.abc import Mapping
from math import ceil, inf

import numpy as np

from harness.metrics.playback import is_continuous
from harness.metrics.requests import BARGED_IN, COMPLETED

STEADY_AFTER = 0.1
"""Share of the completions before the window begins."""

Turns = Mapping[str, np.ndarray]
"""Columns of a request table as arrays of shape (turns,); all but the status as floats, NaN where missing."""


def completed_rps(turns: Turns) -> tuple[float | None, int, int, int]:
    """Completions per second of the window, those inside it, those outside, and those without a time.

    The rate is None where the last user's turn ended before the window begins.
    """
    completion_s = _completion_s(turns)
    found, ended = _window(completion_s, turns), ~np.isnan(completion_s)
    inside = int(_within(completion_s, found).sum())
    missing = int(np.isin(turns["status"], [COMPLETED, BARGED_IN]).sum() - ended.sum())
    return inside / (found[1] - found[0]) if found else None, inside, int(ended.sum()) - inside, missing


def effective_rps(turns: Turns, ttfp_s: float = inf) -> tuple[float | None, int]:
    """Spoken turns that completed, or were cut short, without a pause in playback and began within `ttfp_s` seconds;
    per second of the window. And how many spoken turns ended inside it.

    The rate is None without a window, and where nothing is spoken.
    """
    completion_s = _completion_s(turns)
    found, spoken = _window(completion_s, turns), turns["spoken"] > 0
    inside = _within(completion_s, found) & spoken
    # Only completed and barged-in turns have a largest gap.
    unbroken = np.fromiter(map(is_continuous, turns["max_gap_s"]), bool)
    effective = float((inside & unbroken & (turns["audio_ttfp_s"] <= ttfp_s)).sum())
    return effective / (found[1] - found[0]) if found and spoken.any() else None, int(inside.sum())


def _completion_s(turns: Turns) -> np.ndarray:
    ended = np.isin(turns["status"], [COMPLETED, BARGED_IN])
    return np.where(ended, turns["completion_s"], np.nan)


def _window(completion_s: np.ndarray, turns: Turns) -> tuple[float, float] | None:
    """From the completion that makes up the first tenth to the last end of a user's turn, after which load falls."""
    known = np.sort(completion_s[~np.isnan(completion_s)])
    if not known.size:
        return None
    start_s, end_s = known[ceil(STEADY_AFTER * known.size) - 1], np.nanmax(turns["turn_end_s"])
    return (float(start_s), float(end_s)) if end_s > start_s else None


def _within(completion_s: np.ndarray, found: tuple[float, float] | None) -> np.ndarray:
    if found is None:
        return np.zeros(completion_s.size, bool)
    # The window opens with a completion, which therefore is not counted in it.
    return (completion_s > found[0]) & (completion_s <= found[1])
