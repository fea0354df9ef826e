"""index.html of a folder of results directories: verdict, load, P90 and its trend, settings and time of each run, a
link to its report, and the command that compares it with the run before."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from harness.records.results import COLLECTION
from reports.cards.group import load_group
from reports.claims.grading import counted as counted_facts
from reports.comparison.perceptible import WAIT_S
from reports.pages.html import opening
from reports.pages.templates import write
from reports.runs.answer import find_answer
from reports.runs.measured import Measured, load_run
from reports.runs.side import side_of
from reports.tables.labels import counted, setting
from workloads.atomic_file import cannot_write
from workloads.errors import UserError


class Listed(NamedTuple):
    """One run of the index. `when`: start of its first point, ISO 8601; `report`: path from the index, "" for none."""

    run: str
    what: str
    when: str
    verdict: str
    """Its first sentence."""
    report: str
    word: str = ""
    """PASS, FAIL or INCONCLUSIVE; of a run without targets empty."""
    label: str = ""
    """The build of the server, as the user named it."""
    load: str = ""
    """The setting of its P90."""
    p90_ms: Mapping[str, float] = {}
    """Variant -> P90 of the wait at that setting, ms; infinite where failed turns make it so."""
    trend: str = ""
    """The largest change of a P90 since the run before with the same settings."""
    worse: bool | None = None
    """Direction of that change if people notice it: True for the worse, False for the better."""
    before: str = ""
    """The run before with the same settings."""
    key: str = ""
    """The settings; runs with the same ones are compared."""

    def as_row(self) -> dict[str, Any]:
        """Return it as plain data for JSON and CSV, with the P90 in ms of the variant with the longest one."""
        row = self._asdict()
        for name in ("key", "worse"):
            del row[name]
        return {**row, "p90_ms": max(self.p90_ms.values(), default=None)}


def index_rows(folder: Path, runs: Sequence[Path]) -> list[Listed]:
    """Return a row for each of these results directories below a folder, the latest first."""
    latest: dict[str, Listed] = {}
    rows = []
    for run in sorted((_listed(folder, run) for run in runs), key=lambda run: (run.when, run.run)):
        earlier = latest.get(run.key) if run.key else None
        rows.append(run if earlier is None else since(run, earlier))
        latest[run.key] = run
    return rows[::-1]


def since(run: Listed, earlier: Listed) -> Listed:
    """Return the run with its trend since an earlier one, if their P90 are at the same load."""
    pairs = {name: (earlier.p90_ms[name], ms) for name, ms in run.p90_ms.items() if name in earlier.p90_ms}
    finite = {name: pair for name, pair in pairs.items() if all(map(math.isfinite, pair))}
    if not finite or run.load != earlier.load:
        return run._replace(before=earlier.run)
    name = max(finite, key=lambda name: abs(finite[name][1] - finite[name][0]))
    before, now = finite[name]
    whose = f"{name} " if len(run.p90_ms) > 1 else ""
    noticed = abs(now - before) >= 1000 * WAIT_S
    return run._replace(
        before=earlier.run, trend=f"{whose}{before:,.0f} → {now:,.0f}", worse=now > before if noticed else None
    )


def write_index(folder: Path, rows: list[Listed]) -> Path:
    """Write index.html into a folder of results directories and return its path."""
    page, title = folder / "index.html", f"Runs in {folder.resolve().name}"
    try:
        return write(page, "pages/index.html.j2", title=title, rows=rows, folder=folder)
    except OSError as error:
        raise cannot_write(page, error) from None


def _listed(folder: Path, run: Path) -> Listed:
    name = str(run.relative_to(folder))
    report = f"{name}/report.html" if (run / "report.html").is_file() else ""
    try:
        row, points = _group(run) if (run / COLLECTION).is_file() else _experiment(run)
    except UserError as error:
        return Listed(name, "cannot be read", "", str(error), report)
    failed, verdict = sum(point.error is not None for point in points), row.verdict
    if failed:
        verdict = f"{verdict.rstrip('.')}. {counted(failed, 'point')} failed."
    when = min((point.record.manifest["started"] for point in points), default="")
    return row._replace(run=name, report=report, verdict=verdict, when=when)


def _group(run: Path) -> tuple[Listed, Sequence[Measured]]:
    group = load_group(run)
    what = f"{group.name}, {counted(len(group.cards), 'card')}"
    return Listed("", what, "", counted_facts(group.claims), ""), group.points


def _experiment(folder: Path) -> tuple[Listed, Sequence[Measured]]:
    run = load_run(folder)
    settings, title = (side_of(run.experiment).settings(run.experiment), run.experiment.title or run.experiment.name)
    what, begin = f"{title}: {settings}" if settings else title, opening(run)
    result = find_answer(run.finished, [*run.experiment.grid])
    sentence = begin.sentence or "no point has finished"
    row = Listed("", what, "", sentence, "", begin.word, run.experiment.label, key=f"{what} {run.experiment.grid}")
    if result is not None and not run.frames:
        metric = "audio_ttfp_p90" if run.spoken else "ttft_p90"
        values = {label: result.by_seed(label, metric).values() for label in result.variants}
        p90_ms = {
            label: 1000 * median([value for value in each if value is not None])
            for label, each in values.items()
            if any(value is not None for value in each)
        }
        row = row._replace(load=setting(result.fixed), p90_ms=p90_ms)
    return row, run.points
