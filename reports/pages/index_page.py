"""index.html of a folder of results directories: name, settings, time and verdict of each run, and a link to its
report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from harness.records.results import COLLECTION
from reports.cards.group import load_group
from reports.claims.claim import by_verdict
from reports.pages.html import sentence
from reports.pages.templates import write
from reports.runs.measured import Measured, load_run
from reports.runs.table import run_settings
from reports.tables.labels import counted
from workloads.atomic_file import cannot_write
from workloads.errors import UserError


class Listed(NamedTuple):
    """One run of the index. `when`: start of its first point, ISO 8601; `report`: path from the index, "" for none."""

    run: str
    what: str
    when: str
    verdict: str
    report: str


def index_rows(folder: Path, runs: Sequence[Path]) -> list[Listed]:
    """Return a row for each of these results directories below a folder, the latest first."""
    found = [_listed(folder, run) for run in runs]
    return sorted(found, key=lambda run: (run.when, run.run), reverse=True)


def write_index(folder: Path, rows: list[Listed]) -> Path:
    """Write index.html into a folder of results directories and return its path."""
    page, title = folder / "index.html", f"Runs in {folder.resolve().name}"
    try:
        return write(page, "pages/index.html.j2", title=title, rows=rows)
    except OSError as error:
        raise cannot_write(page, error) from None


def _listed(folder: Path, run: Path) -> Listed:
    name = str(run.relative_to(folder))
    report = f"{name}/report.html" if (run / "report.html").is_file() else ""
    try:
        what, verdict, points = _group(run) if (run / COLLECTION).is_file() else _experiment(run)
    except UserError as error:
        return Listed(name, "cannot be read", "", str(error), report)
    failed = sum(point.error is not None for point in points)
    if failed:
        verdict = f"{verdict.rstrip('.')}. {counted(failed, 'point')} failed."
    return Listed(
        name, what, min((point.record.manifest["started"] for point in points), default=""), verdict, report
    )


def _group(run: Path) -> tuple[str, str, Sequence[Measured]]:
    group = load_group(run)
    return f"{group.name}, {counted(len(group.cards), 'card')}", by_verdict(group.claims), group.points


def _experiment(folder: Path) -> tuple[str, str, Sequence[Measured]]:
    run = load_run(folder)
    settings, title = run_settings(run.experiment), run.experiment.title or run.experiment.name
    what = f"{title}: {settings}" if settings else title
    return what, sentence(run) or "no point has finished", run.points
