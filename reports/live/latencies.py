"""The latencies of text at a live endpoint as its engineers read them: P50, P90 and P99 of each, at each load."""

from __future__ import annotations

from statistics import median
from typing import Any

from rich.table import Table

from reports.live.live_record import loads
from reports.runs.measured import Measured, Run
from reports.runs.part import Section
from reports.tables.columns import FEW, column_for, legend
from reports.tables.plain_tables import table_of_units

LATENCIES = {"ttft": "TTFT", "first_answer": "first answer after reasoning", "tbt": "time between tokens", "e2e": "E2E"}
STATISTICS = ("p50", "p90", "p99")
HEADINGS = (("latency", ""), *((statistic.upper(), "ms") for statistic in STATISTICS), ("n", ""))


def section(run: Run) -> dict[str, Any] | None:
    """Headings, each with its unit, and a row for each latency of each load; None for a run without text."""
    rows = []
    few = False
    for load in loads(run):
        points = [point for point in load.points if point.error is None and _is_text(point)]
        for name, title in LATENCIES.items():
            counts = [point.count(f"{name}_p50") for point in points]
            if not any(counts):
                continue
            columns = [column_for(f"{name}_{statistic}") for statistic in STATISTICS]
            n = min(counts)
            few |= any(map(FEW.__eq__, (column.few(n) for column in columns)))
            texts = [f"{column.text(_middle(points, column.metric))}{column.few(n)}" for column in columns]
            rows.append([load.label(run) or load.variant.label, title, *texts, f"{n:,}"])
    if not rows:
        return None
    note = legend([column_for(f"ttft_{statistic}") for statistic in STATISTICS]) if few else ""
    return {"headings": [("load", ""), *HEADINGS], "rows": rows, "note": note}


SECTION = Section("live/latencies.html.j2", section, "results")


def latencies_table(run: Run) -> Table | None:
    """The same for a terminal."""
    found = section(run)
    if found is None:
        return None
    table = table_of_units("latencies of text, medians of runs", found["headings"], found["rows"], left=2)
    if found["note"]:
        table.caption, table.caption_justify = found["note"], "left"
    return table


def _is_text(point: Measured) -> bool:
    return point.value("ttft_p50") is not None and point.value("audio_ttfp_p50") is None


def _middle(points: list[Measured], metric: str) -> float | None:
    values = [value for point in points if (value := point.value(metric)) is not None]
    return median(values) if values else None
