"""A run of `rehearse live` next to a result of another tool, both by the readers of `rehearse profile --from`.

Both sides are lists of requests, and each number is made of them in one way, whatever the tool itself reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.measured_runs.folder import files_of, live_experiment, read_runs
from harness.measured_runs.measured_run import MeasuredRun, Request
from harness.records.results import EXPERIMENT
from workloads.errors import UserError

QUANTILES = (50, 90, 99)
FEWEST = {50: 1, 90: 10, 99: 100}
"""Requests with which a percentile is shown: with fewer it is the largest value."""
DEFINITIONS = {
    "rehearse live": "TTFT and E2E count from when a request was due to be sent",
    "guidellm": "TTFT and E2E count from when the client sent the request, which may be later than it was due",
    "vllm bench serve": "TTFT and E2E count from when the client sent the request, and E2E is its TTFT with all times "
    "between messages",
    "aiperf": "TTFT and E2E count from when the client sent the request, and E2E ends with the last message that has "
    "content",
    "inference-perf": "TTFT and E2E count from when the client sent the request",
    "": "times are the server's own, without the client and the network",
}
"""Tool -> how its times differ from others'."""


@dataclass(frozen=True)
class Row:
    """One metric of a load; times in s, rates in 1/s. None: not measured."""

    load: str
    metric: str
    unit: str
    a: float | None
    b: float | None

    @property
    def ratio(self) -> float | None:
        return self.b / self.a if self.a and self.b is not None else None


@dataclass(frozen=True)
class Foreign:
    """`notes`: what differs in the definitions; `a`, `b`: names of the sides."""

    a: str
    b: str
    notes: tuple[str, ...]
    rows: tuple[Row, ...]


def is_foreign(path: Path) -> bool:
    """Return whether a path is a result of another tool: a file, or a folder with such files and no experiment."""
    return path.is_file() or (path.is_dir() and not (path / EXPERIMENT).is_file() and bool(files_of(path)))


def compare_foreign(a: Path, b: Path) -> Foreign:
    """Return the metrics of both sides, load by load. UserError for what states no single requests, and where the loads
    cannot be paired."""
    # What is wrong with a file comes before what is wrong with the pair.
    runs = {path: _run(path) for path in sorted((a, b), key=is_foreign, reverse=True)}
    left, right = runs[a], runs[b]
    loads = _pairs(left, right, a, b)
    tools = dict.fromkeys((left.tool, right.tool))
    names = {tool: tool or "the server's traces" for tool in tools}
    notes = [f"{names[tool]}: {DEFINITIONS.get(tool, 'as the tool states them')}." for tool in tools]
    notes += [
        "Time between tokens is (E2E - TTFT) / (tokens - 1) on both sides, whatever the tool reports.",
        "Only requests that succeeded are compared; percentiles are over all of them, without a steady window.",
    ]
    rows = []
    for load, x, y in loads:
        before, after = _metrics(x), _metrics(y)
        rows += [Row(load, *metric, value, after[metric]) for metric, value in before.items()]
    return Foreign(f"{a} ({names[left.tool]})", f"{b} ({names[right.tool]})", tuple(notes), tuple(rows))


def _run(path: Path) -> MeasuredRun:
    if path.is_dir() and not is_foreign(path) and live_experiment(path) is None:
        raise UserError(f"{path} is a simulated run; a result of another tool is compared with one of rehearse live.")
    runs = read_runs(path)
    if len(runs) > 1:
        raise UserError(f"{path} holds {len(runs)} runs ({', '.join(run.name for run in runs)}); give one of them.")
    (run,) = runs
    if not isinstance(run, MeasuredRun):
        raise UserError(f"{path} states means alone; give a file with single requests.")
    return run


def _pairs(
    a: MeasuredRun, b: MeasuredRun, of_a: Path, of_b: Path
) -> list[tuple[str, Sequence[Request], Sequence[Request]]]:
    """Return the loads of both sides: of one name, or the only ones."""
    left, right = _loads(a), _loads(b)
    if len(left) == len(right) == 1:
        (x, before), (y, after) = *left.items(), *right.items()
        return [(x if x == y else f"{x} / {y}", before, after)]
    common = [name for name in left if name in right]
    if not common:
        raise UserError(
            f"no load of {of_a} ({', '.join(left)}) has the name of one of {of_b} ({', '.join(right)}); compare runs "
            "of one load each, or of the same loads."
        )
    return [(name, left[name], right[name]) for name in common]


def _loads(run: MeasuredRun) -> dict[str, Sequence[Request]]:
    seen = run.requests if run.client is None else [each for each in run.client if each is not None]
    if run.client is not None and len(seen) < len(run.requests):
        return {"all": seen}
    return {label: seen[first:last] for label, first, last in run.parts}


def _metrics(seen: Sequence[Request]) -> dict[tuple[str, str], float | None]:
    """Return the metrics by name and unit."""
    metrics: dict[tuple[str, str], float | None] = {("requests", ""): float(len(seen))}
    values = {
        "TTFT": [one.ttft_s for one in seen],
        "time between tokens": [one.itl_s for one in seen],
        "E2E": [one.e2e_s for one in seen],
    }
    for name, times in values.items():
        known = [each for each in times if each is not None]
        for quantile in QUANTILES:
            enough = len(known) >= FEWEST[quantile]
            metrics[f"{name} P{quantile}", "ms"] = 1000 * float(np.percentile(known, quantile)) if enough else None
    ends = [one.arrival_s + one.e2e_s for one in seen if one.e2e_s is not None]
    took_s = max(ends, default=0.0) - min((one.arrival_s for one in seen), default=0.0)
    for name, total in (
        ("requests", len(seen)),
        ("tokens of prompts", sum(one.prompt_tokens for one in seen)),
        ("tokens of replies", sum(one.output_tokens for one in seen)),
    ):
        metrics[name, "1/s"] = total / took_s if took_s > 0 else None
    return metrics
