"""The table of a run: a row per engine and cell of the grid, with the median over seeds and its range."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from harness.experiments.experiment import Experiment
from harness.metrics.metric_name import in_class
from harness.records.record import INVALID
from reports.runs import measured
from reports.runs.measured import Measured, Run, by_seed, events, over_seeds
from reports.runs.side import side_of
from reports.runs.steady import steady_notes
from reports.tables.columns import (
    CAME,
    CLASSES,
    COMPLETED,
    CUMULATIVE,
    FEW,
    LIVE,
    MISSING,
    ON_LINE,
    OVER_RUN,
    PARTS,
    TEXT,
    Column,
    asked_columns,
    class_names,
    least_events,
    legend,
    live_notes,
    metric_names,
    of_class,
    shown,
    too_few,
)
from reports.tables.labels import short
from workloads.errors import printable

REPORT_ONLY = (
    "effective_rps",
    *(column.metric for column in OVER_RUN),
    "frame_latency_p50",
    "pool_plateau",
    "saturation_predicted_s",
    "saturation_measured_s",
    "admitted",
    "shed",
)
"""Headline metrics for which a terminal has no room."""

LIVE_REPORT_ONLY = ("completed_rps",)
"""Metrics that a live run leaves out in favour of the load generator's figures."""
PART_NAMES = [column.metric for column in PARTS]
WIDE_ONLY = ("wasted_token_ratio", "wasted_audio_ratio")
"""Metrics without room in 80 columns: with the send delay for live runs, otherwise to make room for n."""
TAILS = ["tbt_p99", "e2e_p99"]
"""Percentiles that programs get of text at a live endpoint, besides the metrics of every run."""
LOAD = (*LIVE, ON_LINE, CAME)
"""Columns of the load; they show medians alone."""
N_MEANS = "n: turns, replies or other events behind the values before it, of the run with the fewest"


def results_table(run: Run, ranges: bool = True, asked: Sequence[str] = ()) -> Group:
    """Return the table, the table of request classes if there are any, and why each failed point failed.

    Without `ranges` it fits 80 columns. `asked`: metrics to show instead of the main ones.
    """
    failures = [_failure(run.experiment, point) for point in run.failed]
    return Group(main_table(run, ranges, asked), *_notes(run), *_class_table(run, ranges), *failures)


def main_table(run: Run, ranges: bool = True, asked: Sequence[str] = ()) -> Table:
    """Return the table alone; see `results_table`."""
    experiment, columns = run.experiment, _columns(run, ranges, asked)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.title, table.title_justify = _title(experiment), "left"
    for heading in ("engine", *experiment.grid):
        table.add_column(heading, no_wrap=True)
    cells = _cells(run)
    filled = _filled([measured.shown(members) for members in cells.values()], columns, ranges)
    for heading, _ in filled:
        _add(table, heading, ranges)
    table.add_column("runs", justify="right", no_wrap=ranges)
    for index, ((engine, *cell), members) in enumerate(cells.items()):
        settings = (MISSING if value is None else _setting(value) for value in cell)
        table.add_row(engine, *settings, *(texts[index] for _, texts in filled), _runs(members))
    over = "median over seeds (lowest–highest)" if ranges else "median over seeds, ranges in the report"
    notes = [over] if len(experiment.seeds) > 1 else []
    table.caption, table.caption_justify = _caption([*notes, N_MEANS], filled, columns), "left"
    return table


def _add(table: Table, heading: str, wide: bool) -> None:
    """Add a column of numbers. Rich breaks long headings within words, so a narrow table breaks them at spaces."""
    table.add_column(heading if wide else heading.replace(" ", "\n"), justify="right", no_wrap=not wide)


def _filled(
    cells: Sequence[Sequence[Measured]], columns: Sequence[Column], ranges: bool
) -> list[tuple[str, list[str]]]:
    """Heading and texts of each column, and behind columns over the same events one of how many these were."""
    filled = []
    for counts, group in groupby(columns, lambda column: [_n(members, column) for members in cells]):
        group = list(group)
        for column in group:
            texts = [_spread(members, column, ranges and column not in LOAD) for members in cells]
            filled.append((f"{column.heading}\n{column.unit}".rstrip(), texts))
        if any(counts) and any(_tells_n(column, ranges) for column in group):
            filled.append(("n", [MISSING if n is None else f"{n:,}" for n in counts]))
    return filled


def _tells_n(column: Column, ranges: bool) -> bool:
    """Return whether the column gets n: not for metrics of the load; without room only for what users felt."""
    if column.tally or column in LOAD:
        return False
    felt = least_events(column.metric) > 1 or column.unit.startswith("%")
    return ranges or (felt and column.metric not in WIDE_ONLY)


def _n(members: Sequence[Measured], column: Column) -> int | None:
    """Return the events behind the column's median; None if it has none."""
    return None if column.tally or column in LOAD else events(members, column.metric)


def _caption(notes: Sequence[str], filled: Sequence[tuple[str, Sequence[str]]], columns: Sequence[Column]) -> str:
    few = any(FEW in text for _, texts in filled for text in texts)
    return "; ".join([*notes, *([legend(columns)] if few else [])])


def _notes(run: Run) -> list[Text]:
    """Return the notes on the turns and rates that the columns leave out, and those of live runs."""
    loads = {}
    for cell, members in _cells(run).items():
        where = " ".join(f"{axis}={value}" for axis, value in zip(run.experiment.grid, cell[1:], strict=True))
        loads[f"{where}: " if where else ""] = [point.values for point in members]
    return [Text(each, "dim") for each in [*steady_notes(run), *live_notes(loads)]]


def results_data(run: Run, asked: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the rows of the table for programs: every setting, fixed ones too, and every metric (or the requested
    ones) over the seeds, in its own unit.

    `n` is of the run with the fewest events, `runs` how many runs have a value, and `few` whether n is less than the
    percentile needs.
    """
    rows, experiment = [], run.experiment
    for (engine, *cell), members in _cells(run).items():
        main = shown(point.values for point in run.points)
        names = metric_names(asked, main) or dict.fromkeys(
            [name for point in members for name in point.values] + (TAILS if TEXT[2] in main else [])
        )
        rows.append(
            {
                "engine": engine,
                "settings": {**experiment.set, **dict(zip(experiment.grid, cell, strict=True))},
                "runs": sum(point.error is None for point in members),
                "runs_failed": sum(point.error is not None for point in members),
                "metrics": {name: _numbers(members, name) for name in names},
            }
        )
    return rows


def _numbers(members: Sequence[Measured], metric: str) -> dict[str, Any]:
    spread, n = over_seeds(members, metric), events(members, metric)
    return {
        "median": spread.median,
        "low": spread.low,
        "high": spread.high,
        "n": n or 0,
        "runs": spread.n,
        "few": n is not None and too_few(metric, n),
    }


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
    title, fixed = Text(experiment.title or experiment.name), side_of(experiment).settings(experiment)
    return title.append(f"\n{fixed}", "not italic dim") if fixed else title


def _class_table(run: Run, wide: bool) -> list[Table]:
    """A row for each class within the rows of the table above, medians only; nothing without classes."""
    names = class_names(point.values for point in run.points)
    if not names:
        return []
    columns = [column for column in CLASSES if column.first]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.title, table.title_justify = "by class of request", "left"
    for heading in ("engine", *run.experiment.grid, "class", "n"):
        table.add_column(heading, no_wrap=True)
    table.columns[-1].justify = "right"
    for column in columns:
        _add(table, f"{column.heading}\n{column.unit}", wide)
    few = False
    for (engine, *cell), members in _cells(run).items():
        settings = [engine, *(MISSING if value is None else _setting(value) for value in cell)]
        for name in names:
            class_columns = of_class(name, columns)
            values = [_spread(members, column, ranges=False) for column in class_columns]
            few |= any(FEW in value for value in values)
            n = events(members, in_class(name, "ttft_p50"))
            table.add_row(*settings, name, MISSING if n is None else f"{n:,}", *values)
            settings = [""] * len(settings)
    note = "in time: within the request's deadline, failed ones count as late; goodput: all deadlines met; n: requests"
    table.caption, table.caption_justify = f"{note}; {legend(columns)}" if few else note, "left"
    return [table]


def _columns(run: Run, wide: bool, asked: Sequence[str]) -> list[Column]:
    """Return the columns of the table. Failed points keep metrics on disk as well: their rows are empty, and have the
    same columns."""
    columns = shown(point.kept for point in run.points)
    if asked:
        return asked_columns(asked, columns)
    if LIVE[0] not in columns:
        left_out = {*REPORT_ONLY, *(() if wide or CUMULATIVE not in columns else (COMPLETED,))}
        return [column for column in columns if column.metric not in left_out]
    not_asked = ON_LINE if "rate" in run.experiment.grid else CAME
    left_out = {*REPORT_ONLY, not_asked.metric} - {column.metric for column in LIVE}
    left_out |= set() if TEXT[2] in columns else set(LIVE_REPORT_ONLY)
    left_out |= set() if wide else {*WIDE_ONLY, LIVE[0].metric, CUMULATIVE.metric, *PART_NAMES}
    return [column for column in columns if column.metric not in left_out]


def _setting(value: Any) -> str:
    return short(value) if isinstance(value, str) else str(value)


def _cells(run: Run) -> dict[tuple[Any, ...], list[Measured]]:
    cells: dict[tuple[Any, ...], list[Measured]] = {}
    for point in run.points:
        axes = (point.params.get(axis) for axis in run.experiment.grid)
        cells.setdefault((point.point.engine, *axes), []).append(point)
    return cells


def _runs(members: Sequence[Measured]) -> Text:
    """Return the number of counting runs and, for others, whether the load generator was the cause."""
    ok = sum(point.error is None for point in members)
    if ok == len(members):
        return Text(str(ok))
    invalid = any((point.error or "").startswith(INVALID) for point in members)
    return Text(f"{ok} of {len(members)}{f' {INVALID}' if invalid else ''}", style="bold red")


def _spread(members: Sequence[Measured], column: Column, ranges: bool) -> str:
    median, spread = column.over(by_seed(members, column.metric))
    median += column.few(_n(members, column))
    return f"{median} ({spread.replace(' to ', '–')})" if ranges and spread else median


def _failure(experiment: Experiment, point: Measured) -> Text:
    cell = " ".join(f"{axis}={point.params.get(axis)}" for axis in experiment.grid)
    log, reason = point.record.folder / "log.txt", printable(point.error or "")
    what = f"failed: {point.point.engine} {cell} seed={point.seed}: {reason}"
    if point.record.metrics and experiment.device == "live":  # the verdict gives the reason
        word = INVALID if point.record.invalid else "failed"
        what = f"{cell} seed={point.seed}: {word}, and its numbers do not count"
    return Text(f"{what} (log: {printable(str(log))})", style="red")
