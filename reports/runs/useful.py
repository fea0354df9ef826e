"""Useful RPS: of the loads that a run swept, the highest whose listeners hear unbroken speech."""

from collections.abc import Iterator
from typing import Any

from harness.metrics.sweep import LoadPoint, useful_rps
from reports.figures.picture import short
from reports.runs.measured import Measured, Run, over_seeds
from reports.tables.columns import MISSING

LOAD_AXES = {"rate": "sessions per second offered", "c": "requests per second that c callers complete"}
"""What a load is, in the order of preference: an open loop offers a rate, a closed one yields it."""


def useful_loads(run: Run) -> dict[str, Any] | None:
    """A row for each variant and each setting of the other axes; None when no load was varied or nobody spoke."""
    axis = next((name for name in LOAD_AXES if len(run.values(name)) > 1 and _swept(run, name)), None)
    if axis is None or not run.spoken:
        return None
    others = list(dict.fromkeys(tuple((n, v) for n, v in cell if n != axis) for cell in run.cells))
    rows = []
    for other in others:
        for index, variant in enumerate(run.variants):
            points = run.at(variant, **dict(other))
            result = useful_rps(_loads(points, axis))
            value = MISSING if result.value is None else f"{result.value:.3f}"
            cell = [short(value) for _, value in other]
            rows.append({"cell": cell, "variant": index, "value": value, "reason": result.reason})
    return {"load": LOAD_AXES[axis], "axes": [name for name, _ in others[0]], "rows": rows}


def _swept(run: Run, axis: str) -> bool:
    return any(name == axis for cell in run.cells for name, _ in cell)


def _loads(points: list[Measured], axis: str) -> Iterator[LoadPoint]:
    for value in sorted({point.params[axis] for point in points}):
        here = [point for point in points if point.params[axis] == value]
        load = value if axis == "rate" else over_seeds(here, "completed_rps").median
        if load is not None:
            for point in here:
                yield LoadPoint(round(load, 6), point.seed, point.value("continuity"))
