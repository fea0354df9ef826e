"""The cost of documents in flight to the users of an endpoint, and the tokens gained: users with them against the same
users without."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Group
from rich.text import Text

from harness.metrics.stats import Spread, across_seeds, paired
from reports.runs.answer import Finished
from reports.runs.measured import Run
from reports.tables.columns import MISSING, Column, column_for, columns
from reports.tables.plain_tables import table_of_units

BATCH = "batch"
"""The axis: documents in flight."""
GAIN = Column("batch_tps", "batch", "tokens/s", 1, 1)
DOCUMENTS = (
    Column("batch_in_flight", "in flight", "mean", 1, 1),
    Column("batch_completed", "completed", "documents", 1, 0),
    Column("batch_failed", "failed", "documents", 1, 0),
)
FAILED = Column("failed", "failed", "turns", 1, 0)


@dataclass(frozen=True)
class Beside:
    """Online users with a number of documents in flight. `cell`: the rest of the setting; `spreads`: over seeds, by
    metric; `ratios`: the value divided by the value without documents."""

    cell: tuple[Any, ...]
    documents: int
    spreads: Mapping[str, Spread]
    ratios: Mapping[str, float | None]


def user_columns(points: Sequence[Finished]) -> list[Column]:
    """Return the columns that users notice: when the first sound or token comes, and whether the rest keeps coming."""
    spoken = any(point.values.get("audio_ttfp_p99") is not None for point in points)
    names = ("audio_ttfp_p99", "continuity") if spoken else ("online.ttft_p99", "online.tbt_p99")
    found = [column_for(name, columns(spoken)) for name in names]
    return [replace(column, heading=column.heading.rpartition(": ")[2]) for column in found]


def beside(points: Sequence[Finished], axes: Sequence[str]) -> list[Beside]:
    """A row for each number of documents, within each cell of the other `axes`; points that count."""
    users, found = user_columns(points), []
    others = [axis for axis in axes if axis != BATCH]
    cells = dict.fromkeys(tuple(point.params.get(axis) for axis in others) for point in points)
    for cell in cells:
        own = [p for p in points if tuple(p.params.get(axis) for axis in others) == cell]
        for documents in sorted({point.params[BATCH] for point in own}):
            with_them = [point for point in own if point.params[BATCH] == documents]
            without = [point for point in own if point.params[BATCH] == 0]
            spreads = {
                column.metric: across_seeds(_by_seed(with_them, column.metric))
                for column in (*users, FAILED, GAIN, *DOCUMENTS)
            }
            ratios = {
                column.metric: paired(
                    _by_seed(without, column.metric), _by_seed(with_them, column.metric)
                ).ratio.median
                for column in users
            }
            found.append(Beside(cell, documents, spreads, ratios))
    return found


def text_rows(
    points: Sequence[Finished], axes: Sequence[str]
) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """Return the headings, each with its unit, and the rows: cell, documents, users' metrics with their ratio, batch
    throughput."""
    users = user_columns(points)
    headings = [(axis, "") for axis in axes if axis != BATCH] + [(BATCH, "in flight")]
    for column in users:
        headings += [(column.heading, column.unit), ("", "× without")]
    headings += [("users failed", FAILED.unit)]
    headings += [(column.heading, column.unit) for column in (GAIN, *DOCUMENTS)]
    rows = []
    for row in beside(points, axes):
        cells = [*map(str, row.cell), str(row.documents)]
        for column in users:
            ratio = row.ratios[column.metric] if row.documents else None
            cells += [_text(column, row), MISSING if ratio is None else f"{ratio:.2f}"]
        cells += [_text(column, row) for column in (FAILED, GAIN, *DOCUMENTS)]
        rows.append(cells)
    return headings, rows


def cost_table(run: Run) -> Group:
    """For a terminal: the table, and why documents failed."""
    table = table_of_units(
        "cost of batch jobs for the users", *text_rows(run.finished, [*run.experiment.grid])
    )
    return Group(table, *(Text(said, style="bold red") for said in refused(reasons_of(run))))


def refused(reasons: Mapping[int, Counter[str]]) -> list[str]:
    """Return a sentence for each number of documents in flight at which some failed. `reasons`: counts by reason."""
    said = []
    for documents, counts in sorted(reasons.items()):
        if counts:
            ((reason, most),) = counts.most_common(1)
            more = "" if most == counts.total() else f", {most} of them"
            said.append(
                f"batch={documents}: {counts.total()} documents failed{more} with {reason}; the users' "
                "numbers are valid, but with fewer documents than requested."
            )
    return said


def reasons_of(run: Run) -> dict[int, Counter[str]]:
    """Return the reasons of failed documents by number in flight."""
    counts: dict[int, Counter[str]] = {}
    for point in run.points:
        if point.error is None and point.has("batch_failures"):
            reasons = point.record.table("batch_failures")["reason"].astype(str)
            counts.setdefault(point.params[BATCH], Counter()).update(reasons)
    return counts


def _text(column: Column, row: Beside) -> str:
    return column.text(row.spreads[column.metric].median)


def _by_seed(points: Sequence[Finished], metric: str) -> dict[int, float | None]:
    return {point.seed: point.values.get(metric) for point in points}
