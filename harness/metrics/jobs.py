"""Times of whole jobs: agents, the agents that they call, and the tools in between.

The path of a job leads from its last end back over the step's gap to the end that it waited for longest, and so on to
the begin. Gaps on it are the tools' time and all else is the model's, waiting in its queue included: the two sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from harness.metrics.definitions import Definition, statistics
from harness.metrics.metric import Metric, Result, metrics_of
from harness.request_tables.request_table import COMPLETED
from harness.request_tables.steady_window import counted
from workloads.columns.jobs import Waits, job_of


def of_jobs(requests: pd.DataFrame, turns: pd.DataFrame) -> dict[str, Metric]:
    """Return the metrics of `JOB_DEFINITIONS`; none where `turns`, the columns of the trace, have no job."""
    columns = {str(name): turns[name].to_numpy() for name in turns}
    if "recorded_s" not in columns or np.isnan(columns["recorded_s"]).all():
        return {}
    return metrics_of(_of_each(requests, columns), JOB_DEFINITIONS, [_measured])


def _measured(run: tuple[Mapping[str, np.ndarray], int]) -> Mapping[str, Result]:
    """Return the metrics. `run`: values of each whole job by the names of `_JOB`, and how many jobs began."""
    values, begun = run
    n = len(values["job_time"])
    others = np.full(begun - n, np.nan)
    return {"jobs": (float(n), n, begun - n)} | {name: np.append(values[name], others) for name in _JOB}


def _of_each(requests: pd.DataFrame, columns: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
    """Return the values of each metric of `_JOB` for every whole job, and the number of jobs that began: in the steady
    window, or of all where none did."""
    begin_s, end_s = (_by_row(requests, columns, name) for name in ("turn_start_s", "completion_s"))
    begun_s = _by_row(counted(requests), columns, "turn_start_s")
    of_jobs = ~np.isnan(columns["recorded_s"])
    steady = ~np.isnan(begin_s if np.isnan(begun_s[of_jobs]).all() else begun_s)
    waits, job = Waits.of(columns), job_of(columns)
    measured: list[tuple[float, ...]] = []
    begun = 0
    for first in np.flatnonzero(~np.isnan(columns["recorded_s"])).tolist():
        if not steady[first]:
            continue
        begun += 1
        rows = np.flatnonzero(job == job[first])
        if np.isnan(end_s[rows]).any():
            continue
        last = row = int(rows[np.argmax(end_s[rows])])
        tools_s = waits.gap_s[row]
        while waits.before[row]:
            row = max(waits.before[row], key=end_s.__getitem__)
            tools_s += waits.gap_s[row]
        time_s, recorded_s = end_s[last] - begin_s[first], columns["recorded_s"][first]
        ratio = time_s / recorded_s if recorded_s else np.nan
        measured.append((time_s, recorded_s, ratio, tools_s, time_s - tools_s, len(rows)))
    table = np.array(measured, float).reshape(-1, len(_JOB)).T
    return dict(zip(_JOB, table, strict=True)), begun


def _by_row(requests: pd.DataFrame, columns: Mapping[str, Any], name: str) -> np.ndarray:
    """Return a column of the request table for each turn of the trace; NaN for turns without an answer."""
    place = {key: row for row, key in enumerate(zip(columns["session"], columns["turn"], strict=True))}
    values = np.full(len(place), np.nan)
    answered = (requests["status"] == COMPLETED).to_numpy() | (name == "turn_start_s")
    rows = [place[key] for key in zip(requests["session"], requests["turn"], strict=True)]
    values[np.array(rows, int)] = np.where(answered, requests[name].to_numpy(float), np.nan)
    return values


_ORIGIN = "over jobs in which every step was answered; missing are the others that began"
_JOB: dict[str, Definition] = {
    "job_time": Definition(
        "s", "over jobs: time from the begin of the first step, as scheduled, to the end of the last", _ORIGIN, "lower",
        heading="job", shown="s"),
    "job_recorded": Definition(
        "s", "over jobs: time that the same jobs took when they were recorded, with gaps as they are replayed", _ORIGIN,
        None, heading="recorded", shown="s"),
    "job_slowdown": Definition("1", "over jobs: time over that when it was recorded", _ORIGIN, "lower"),
    "job_tool_time": Definition(
        "s", "over jobs: of the time, gaps in which tools run or people think, where nothing else went on", _ORIGIN,
        None, heading="tools", shown="s"),
    "job_model_time": Definition(
        "s", "over jobs: of the time, all else: requests that nothing else covers, in the queue or served", _ORIGIN,
        "lower", heading="model", shown="s"),
    "job_steps": Definition(
        "1", "over jobs: steps, each a request, those of agents that it called included", _ORIGIN, None),
}  # fmt: skip

JOB_DEFINITIONS: dict[str, Definition] = {
    "jobs": Definition("1", "jobs in which every step was answered", _ORIGIN, "higher"),
    **statistics(("p50", "p90", "mean"), _JOB),
}
