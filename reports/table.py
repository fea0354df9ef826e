"""The table of a run: a row per engine and cell of the grid, with the median over seeds and its range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from rehearsal.harness.experiment import Experiment
from rehearsal.harness.live.live_experiment import asked
from rehearsal.harness.metrics.stats import across_seeds
from rehearsal.harness.results import find_record
from rehearsal.reports.columns import (
    CAME,
    CLASSES,
    INVALID,
    LEFT_OUT,
    LIVE,
    MISSING,
    ON_LINE,
    Column,
    class_names,
    of_class,
    shown,
)
from rehearsal.reports.figures.picture import short

REPORT_ONLY = (
    "effective_rps",
    "frame_latency_p50",
    "pool_plateau",
    "saturation_predicted_s",
    "saturation_measured_s",
    "admitted",
    "shed",
)
"""Headline metrics for which a terminal has no room."""

LIVE_REPORT_ONLY = ("completed_rps",)
"""Those that besides give way to how the load generator did."""
LIVE_WIDE_ONLY = ("wasted_token_ratio", "wasted_audio_ratio")
"""And those that 80 columns have no room for."""

Row = dict[str, Any]
"""One entry of DIR/summary.json."""


def results_table(experiment: Experiment, rows: Sequence[Row], out: Path, ranges: bool = True) -> Group:
    """The table, one of classes where there are some, and the reason of each point that failed.

    Without `ranges` they fit 80 columns.
    """
    columns = _columns(experiment, rows, out, ranges)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.title, table.title_justify = _title(experiment), "left"
    if len(experiment.seeds) > 1:
        caption = (
            "median over seeds (lowest–highest)" if ranges else "median over seeds; ranges in the report"
        )
        table.caption, table.caption_justify = caption, "left"
    for heading in ("engine", *experiment.grid):
        table.add_column(heading, no_wrap=True)
    for column in columns:
        heading = f"{column.heading}\n{column.unit}"
        # Rich breaks within the words of what is too wide, so a narrow table is given its lines.
        words = heading if ranges else heading.replace(" ", "\n")
        table.add_column(words, justify="right", no_wrap=not ranges)
    table.add_column("runs", justify="right", no_wrap=ranges)
    single = (*LIVE, ON_LINE, CAME)
    for (engine, *cell), members in _cells(experiment, rows).items():
        values = [_spread(members, column, ranges and column not in single) for column in columns]
        table.add_row(
            engine, *(MISSING if value is None else str(value) for value in cell), *values, _runs(members)
        )
    failures = [_failure(experiment, row, out) for row in rows if row["status"] == "failed"]
    return Group(table, *_left_out(experiment, rows), *_class_table(experiment, rows), *failures)


def _left_out(experiment: Experiment, rows: Sequence[Row]) -> list[Text]:
    """How many turns of live runs are in no column; medians over seeds."""
    told = []
    for cell, members in _cells(experiment, rows).items():
        known = [[v for row in members if (v := _value(row, name)) is not None] for name in LEFT_OUT]
        if all(known):
            where = " ".join(f"{axis}={value}" for axis, value in zip(experiment.grid, cell[1:], strict=True))
            ramp, drain = map(median, known)
            told.append(f"{where}: {ramp:g} + {drain:g}")
    said = f"turns left out, as they were asked in the ramp + in the drain: {', '.join(told)}"
    return [Text(said, "dim")] if told else []


def results_data(experiment: Experiment, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows of the table for programs: every setting, fixed ones too, and every metric over the seeds, in its own
    unit."""
    found = []
    for (engine, *cell), members in _cells(experiment, rows).items():
        names = dict.fromkeys(name for row in members for name in row["metrics"])
        spreads = {name: across_seeds({row["seed"]: _value(row, name) for row in members}) for name in names}
        found.append(
            {
                "engine": engine,
                "settings": {**experiment.set, **dict(zip(experiment.grid, cell, strict=True))},
                "runs": sum(row["status"] == "ok" for row in members),
                "runs_failed": sum(row["status"] == "failed" for row in members),
                "metrics": {
                    name: {"median": each.median, "low": each.low, "high": each.high, "n": each.n}
                    for name, each in spreads.items()
                },
            }
        )
    return found


def flat(data: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same without nesting: a setting has its own name, and so has a metric's median."""
    return [
        {
            "engine": row["engine"],
            **row["settings"],
            "runs": row["runs"],
            "runs_failed": row["runs_failed"],
            **{
                name if part == "median" else f"{name}.{part}": value
                for name, spread in row["metrics"].items()
                for part, value in spread.items()
            },
        }
        for row in data
    ]


def _title(experiment: Experiment) -> Text:
    """What was asked, and what is the same in every row."""
    title = Text(experiment.title or experiment.name)
    live = experiment.device == "live"
    fixed = asked(experiment) if live else " ".join(f"{n}={short(v)}" for n, v in experiment.set.items())
    return title.append(f"\n{fixed}", "not italic dim") if fixed else title


def _class_table(experiment: Experiment, rows: Sequence[Row]) -> list[Table]:
    """A row for each class within the rows of the table above, medians only; nothing without classes."""
    names = class_names(_values(rows))
    if not names:
        return []
    columns = [column for column in CLASSES if column.first]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.title, table.title_justify = "by class of request", "left"
    table.caption, table.caption_justify = (
        "in time: within the request's deadline, failed ones count as late; goodput: all deadlines met",
        "left",
    )
    for heading in ("engine", *experiment.grid, "class"):
        table.add_column(heading, no_wrap=True)
    for column in columns:
        table.add_column(f"{column.heading}\n{column.unit}", justify="right")
    for (engine, *cell), members in _cells(experiment, rows).items():
        settings = [engine, *(MISSING if value is None else str(value) for value in cell)]
        for name in names:
            values = [_spread(members, column, ranges=False) for column in of_class(name, columns)]
            table.add_row(*settings, name, *values)
            settings = [""] * len(settings)
    return [table]


def _values(rows: Sequence[Row]) -> list[dict[str, float | None]]:
    return [{name: metric["value"] for name, metric in row["metrics"].items()} for row in rows]


def _columns(experiment: Experiment, rows: Sequence[Row], out: Path, wide: bool) -> list[Column]:
    """Of the metrics that failed points keep on disk as well: their rows are empty, and have the same columns."""
    failed = (find_record(out / "points", row["point"]) for row in rows if row["status"] == "failed")
    kept = [{"metrics": record.metrics} for record in failed if record is not None]
    found = shown(_values([*rows, *kept]))
    if LIVE[0] not in found:
        return [column for column in found if column.metric not in REPORT_ONLY]
    not_asked = ON_LINE if "rate" in experiment.grid else CAME
    left_out = {*REPORT_ONLY, *LIVE_REPORT_ONLY, not_asked.metric} - {column.metric for column in LIVE}
    left_out |= set() if wide else set(LIVE_WIDE_ONLY)
    return [column for column in found if column.metric not in left_out]


def _cells(experiment: Experiment, rows: Sequence[Row]) -> dict[tuple[Any, ...], list[Row]]:
    cells: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        cells.setdefault((row["engine"], *_cell(experiment, row)), []).append(row)
    return cells


def _cell(experiment: Experiment, row: Row) -> list[Any]:
    return [row["params"].get(axis) for axis in experiment.grid]


def _runs(members: Sequence[Row]) -> Text:
    """How many count; of those that do not, whether it was the load generator's fault."""
    ok = sum(row["status"] == "ok" for row in members)
    if ok == len(members):
        return Text(str(ok))
    invalid = any(row.get("error", "").startswith(INVALID) for row in members)
    return Text(f"{ok} of {len(members)}{f' {INVALID}' if invalid else ''}", style="bold red")


def _value(row: Row, metric: str) -> float | None:
    return row["metrics"].get(metric, {}).get("value")


def _spread(members: Sequence[Row], column: Column, ranges: bool) -> str:
    median, spread = column.over({row["seed"]: _value(row, column.metric) for row in members})
    return f"{median} ({spread.replace(' to ', '–')})" if ranges and spread else median


def _failure(experiment: Experiment, row: Row, out: Path) -> Text:
    cell = " ".join(
        f"{axis}={value}" for axis, value in zip(experiment.grid, _cell(experiment, row), strict=True)
    )
    log = out / "points" / f"{row['point']}.failed" / "log.txt"
    return Text(
        f"failed: {row['engine']} {cell} seed={row['seed']}: {row['error']} (log: {log})", style="red"
    )
