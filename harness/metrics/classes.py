"""The numbers of each class of requests: latencies, deadlines met, and what was done for it per second."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.metrics.class_definitions import in_class
from harness.metrics.requests import ABORTED, BARGED_IN, COMPLETED, UNFINISHED

Turns = Mapping[str, np.ndarray]
"""Columns of a request table with classes as arrays, one value per turn; floats but for status and class."""
Measured = tuple[float | None, int, int]
"""Value, n and missing."""


def by_class(turns: Turns, warm: np.ndarray, run_end_s: float) -> dict[str, Measured]:
    """The metrics of every class, by name; the most urgent class first.

    `warm`: the turns that count for latencies; `run_end_s`: end of the run after its drain.
    """
    names = turns["request_class"]
    urgency = {name: turns["priority"][names == name].min() for name in np.unique(names)}
    measured = {}
    for name in sorted(urgency, key=lambda name: (urgency[name], name)):
        rows = names == name
        own = {column: values[rows] for column, values in turns.items()}
        found = _latencies(own, warm[rows]) | _deadlines(own) | _rates(own, run_end_s)
        n = int(rows.sum())
        found["completed"] = (float((own["status"] == COMPLETED).sum()), n, 0)
        found["preemptions"] = _sum(own["preemptions"])
        found["priority"] = (float(urgency[name]), n, 0)
        measured |= {in_class(str(name), metric): value for metric, value in found.items()}
    return measured


def _latencies(turns: Turns, warm: np.ndarray) -> dict[str, Measured]:
    measured = {}
    for name, column, percentiles in (("ttft", "ttft_s", (50, 90, 99)), ("tbt", "tbt_mean_s", (50, 99))):
        values = turns[column][warm]
        known = values[~np.isnan(values)]
        for p in percentiles:
            value = float(np.percentile(known, p, method="linear")) if known.size else None
            measured[f"{name}_p{p}"] = (value, known.size, values.size - known.size)
    return measured


def _deadlines(turns: Turns) -> dict[str, Measured]:
    ended = _ended(turns)
    wanted = turns["status"] != ABORTED
    ttft_due, tbt_due = (wanted & ~np.isnan(turns[name]) for name in ("ttft_deadline_s", "tbt_deadline_s"))
    return {
        "ttft_in_deadline": _share(_in_time(turns), ttft_due, np.isnan(turns["ttft_s"])),
        "tbt_in_deadline": _share(ended & ~_late(turns, "tbt_max_s"), tbt_due, ~ended),
        "tbt_p99_in_deadline": _share(ended & ~_late(turns, "tbt_p99_s"), tbt_due, ~ended),
        "deadlines_met": _share(_met(turns), ttft_due | tbt_due, ~ended),
    }


def _rates(turns: Turns, run_end_s: float) -> dict[str, Measured]:
    last_s = run_end_s
    if not np.isin(turns["status"], [UNFINISHED, ABORTED]).any():
        # Failed requests have no completion, but waited at least to the end of their user's turn.
        last_s = np.nanmax(
            np.concatenate([turns["completion_s"], turns["turn_end_s"], turns["turn_start_s"]])
        )
    span_s = float(last_s - turns["turn_start_s"].min())
    tokens, n, missing = _sum(turns["generated_thinker"])
    good = float(_met(turns).sum())
    return {
        "goodput_rps": (good / span_s if span_s > 0 else None, turns["status"].size, 0),
        "output_tps": (tokens / span_s if tokens is not None and span_s > 0 else None, n, missing),
    }


def _ended(turns: Turns) -> np.ndarray:
    return np.isin(turns["status"], [COMPLETED, BARGED_IN])


def _in_time(turns: Turns) -> np.ndarray:
    """To the microsecond, as times of a trace are: a difference of two times has an error in its last bits."""
    return np.round(turns["ttft_s"], 6) <= turns["ttft_deadline_s"]


def _late(turns: Turns, column: str) -> np.ndarray:
    return np.round(turns[column], 6) > turns["tbt_deadline_s"]


def _met(turns: Turns) -> np.ndarray:
    """Which requests ended and met what deadlines they have."""
    return _ended(turns) & (np.isnan(turns["ttft_deadline_s"]) | _in_time(turns)) & ~_late(turns, "tbt_max_s")


def _share(met: np.ndarray, due: np.ndarray, unknown: np.ndarray) -> Measured:
    n = int(due.sum())
    return (float(met[due].mean()) if n else None, n, int(unknown[due].sum()))


def _sum(values: np.ndarray) -> Measured:
    known = values[~np.isnan(values)]
    return (float(known.sum()) if known.size else None, known.size, values.size - known.size)
