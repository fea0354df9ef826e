"""Predictions held against real runs, for readers: the rows of the table, and the picture."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from harness.truth.report import REQUESTS, Error, Report, Row
from harness.truth.run import LATENCIES
from reports.figures import predicted
from reports.plain_tables import Table
from reports.style import style
from reports.svg import save

NAMES = {"ttft": "TTFT", "itl": "inter-token", "e2e": "E2E"}
UNITS = {"ttft": (1e3, "ms"), "itl": (1e3, "ms"), "e2e": (1.0, "s")}


def tables(report: Report) -> list[Table]:
    """Each load, then the mean absolute errors over all."""
    headings = ["run", "load", "requests"]
    for name, title in NAMES.items():
        headings += [f"{title}, {UNITS[name][1]}", "predicted", "error"]
    rows = [(_run(row), _load(row), f"{row.requests:,}", *_cells(row)) for row in report.rows]
    totals = [
        (t.kind, str(t.loads), f"{t.requests:,}", *(_percent(t.absolute[name]) for name in LATENCIES))
        for t in report.totals
    ]
    return [
        Table("mean latencies, measured and predicted; error: mean absolute", tuple(headings), rows),
        Table("mean absolute error over all", ("", "loads", "requests", *NAMES.values()), totals),
    ]


def sentences(report: Report) -> list[str]:
    """What is assumed of the runs, and which numbers our constants were calibrated on."""
    said = [
        f"* calibrated on {row.run}, {row.part}: {row.calibrated}" for row in report.rows if row.calibrated
    ]
    assumed: dict[str, list[str]] = {}
    for row in report.rows:
        for sentence in row.assumed:
            assumed.setdefault(sentence, []).append(row.run)
    for sentence, runs in assumed.items():
        names = list(dict.fromkeys(runs))
        where = ", ".join(names) if len(names) <= 3 else f"{len(names)} runs"
        said.append(f"assumed of {where}: {sentence}")
    return said


def write_picture(report: Report, folder: Path) -> Path:
    """Draw what `folder` holds as truth.svg and .pdf; the path of the SVG."""
    with style():
        drawn = predicted.draw(report, pd.read_parquet(folder / REQUESTS))
        save(drawn, folder)
    return folder / f"{drawn.name}.svg"


def _run(row: Row) -> str:
    return f"{row.run}{' *' if row.calibrated else ''}"


def _load(row: Row) -> str:
    return row.part if row.kind != "saturated" else f"{row.part} (saturated)"


def _cells(row: Row) -> list[str]:
    cells: list[str] = []
    for name in LATENCIES:
        error: Error = row.latencies[name]
        factor, _ = UNITS[name]
        for value in (error.measured["mean"], error.predicted["mean"]):
            cells.append(
                "–"
                if value is None
                else f"{factor * value:.3g}"
                if factor * value < 1000
                else f"{factor * value:.0f}"
            )
        cells.append(_percent(error.absolute))
    return cells


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"
