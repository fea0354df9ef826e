"""The table of a run: a row per engine and cell of the grid, with the median over seeds and its range."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from harness.experiment import Experiment
from harness.metrics.stats import across_seeds

# metric, heading, factor from the metric's unit, digits
_TTFP = [("audio_ttfp_p50", "TTFP P50, s", 1, 3), ("audio_ttfp_p90", "TTFP P90, s", 1, 3)]
_TTFT = [("ttft_p50", "TTFT P50, s", 1, 3), ("ttft_p90", "TTFT P90, s", 1, 3)]
_MAIN = [
    ("continuity", "continuous, %", 100, 1),
    ("wasted_token_ratio", "wasted, %", 100, 1),
    ("completed_rps", "completed, 1/s", 1, 2),
]
MISSING = "–"

Row = dict[str, Any]
"""One entry of DIR/summary.json."""


def results_table(experiment: Experiment, rows: Sequence[Row], out: Path) -> Group:
    """The table, and a line with the reason for each point that failed."""
    spoken = any(_value(row, metric) is not None for row in rows for metric, *_ in _TTFP)
    columns = [*(_TTFP if spoken else _TTFT), *_MAIN]
    table = Table(title=experiment.title or experiment.name, title_justify="left", caption_justify="left")
    table.caption = "median over seeds (lowest to highest)"
    for heading in ("engine", *experiment.grid):
        table.add_column(heading)
    for _, heading, *_ in columns:
        table.add_column(heading, justify="right")
    table.add_column("runs", justify="right")
    for (engine, *cell), members in _cells(experiment, rows).items():
        values = [_spread(members, metric, factor, digits) for metric, _, factor, digits in columns]
        ok = sum(row["status"] == "ok" for row in members)
        runs = Text(str(ok)) if ok == len(members) else Text(f"{ok} of {len(members)}", style="bold red")
        table.add_row(engine, *(MISSING if value is None else str(value) for value in cell), *values, runs)
    return Group(table, *(_failure(experiment, row, out) for row in rows if row["status"] == "failed"))


def _cells(experiment: Experiment, rows: Sequence[Row]) -> dict[tuple[Any, ...], list[Row]]:
    cells: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        cells.setdefault((row["engine"], *_cell(experiment, row)), []).append(row)
    return cells


def _cell(experiment: Experiment, row: Row) -> list[Any]:
    return [row["params"].get(axis) for axis in experiment.grid]


def _value(row: Row, metric: str) -> float | None:
    return row["metrics"].get(metric, {}).get("value")


def _spread(members: Sequence[Row], metric: str, factor: float, digits: int) -> str:
    spread = across_seeds({row["seed"]: _value(row, metric) for row in members})
    if spread.median is None or spread.low is None or spread.high is None:
        return MISSING
    median, low, high = (f"{value * factor:.{digits}f}" for value in (spread.median, spread.low, spread.high))
    return median if spread.n == 1 else f"{median} ({low} to {high})"


def _failure(experiment: Experiment, row: Row, out: Path) -> Text:
    cell = " ".join(
        f"{axis}={value}" for axis, value in zip(experiment.grid, _cell(experiment, row), strict=True)
    )
    log = out / "points" / f"{row['point']}.failed" / "log.txt"
    return Text(
        f"failed: {row['engine']} {cell} seed={row['seed']}: {row['error']} (log: {log})", style="red"
    )
