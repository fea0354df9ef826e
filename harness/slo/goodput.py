"""Goodput: the rate of turns, 1/s, that met every target of single turns (DistServe, arXiv 2401.09670, section 2).

Turns count if they ended or were interrupted, and their user's part ended in the steady window. Targets of single turns
are latencies, and for `continuity` playing without a pause above 100 ms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from harness.metrics.metric_name import parsed
from harness.metrics.turns import DISTRIBUTIONS
from harness.records.record import Record
from harness.request_tables.playback import is_continuous
from harness.request_tables.request_table import BARGED_IN, COMPLETED
from harness.request_tables.steady_window import STEADY, Window, phases
from harness.slo.targets import Target


def goodput_rps(record: Record, targets: Sequence[Target]) -> float | None:
    """Return the goodput of a point, 1/s; None for frames, and without a steady window."""
    if record.metrics.get("steady_end", {}).get("value") is None or not record.has("requests"):
        return None
    window = window_of(record, 0.0)
    turns = ended_turns(record.table("requests"), window)
    return None if turns is None or window.length_s <= 0 else good(turns, targets) / window.length_s


def window_of(record: Record, end_s: float) -> Window:
    """Return the steady window; of frames, and of a run that is measured whole, all of it up to `end_s`."""
    begin_s, end = (record.metrics.get(name, {}).get("value") for name in ("steady_begin", "steady_end"))
    return Window(0.0, end_s) if begin_s is None or end is None else Window(begin_s, end)


def ended_turns(requests: pd.DataFrame, window: Window) -> pd.DataFrame | None:
    """Return the turns of the window that ended or were cut short by their user; None for frames."""
    if "turn_end_s" not in requests:
        return None
    ended = requests["status"].isin([COMPLETED, BARGED_IN])
    return requests.loc[ended & (phases(requests, window) == STEADY)]


def good(turns: pd.DataFrame, targets: Sequence[Target]) -> int:
    """Return the number of turns that met the targets."""
    met = np.ones(len(turns), bool)
    for target in targets:
        met &= _each_met(turns, target)
    return int(met.sum())


def _each_met(turns: pd.DataFrame, target: Target) -> np.ndarray:
    """Return the turns that meet a target by themselves; all turns if the target is not one of single turns."""
    free = np.zeros(len(turns), bool)
    if target.metric == "continuity":
        unbroken = [is_continuous(gap_s) for gap_s in turns["max_gap_s"]]
        return ~turns["spoken"].to_numpy(bool) | np.array(unbroken, bool)
    distribution = DISTRIBUTIONS.get(parsed(target.metric).family)
    if distribution is None:
        return ~free
    if distribution.spoken_only:
        free |= ~turns["spoken"].to_numpy(bool)
    if distribution.whole_only:
        free |= (turns["status"] == BARGED_IN).to_numpy()
    return free | np.array([target.met(value) for value in turns[distribution.column]], bool)
