"""One nightly run: its measurements, the earlier night that they are compared with, and the stored verdict.

DIR/DATE/bench/          results of the bench, as of any run
DIR/DATE/fidelity/       what `rehearse fidelity` wrote
DIR/DATE/verdict.json    {date, device, revision, passed, parts: {name: {verdict, why}}}
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import typer

from engines.devices.names import REAL_DEVICES
from harness.experiments.provenance import revision
from harness.records.record import write_json
from reports.comparison.compare import Comparison, compare
from reports.runs.measured import load_run
from workloads.errors import UserError

VERDICT = "verdict.json"
BENCH = "bench"
"""The card, and the folder in a night that its results are in."""
_DEFAULT = "cuda"


@dataclass(frozen=True)
class Part:
    """One of the three results of a night; `void` could not be judged, and does not fail the night."""

    name: str
    verdict: Literal["passed", "failed", "void", "not needed"]
    why: tuple[str, ...]


def folder_of(out: Path, device: str) -> Path:
    """Tonight's folder, named by the date in UTC; the same night again resumes there."""
    date = datetime.now(UTC).date().isoformat()
    return out / (date if device == _DEFAULT else f"{date}-{device}")


def last_passed(out: Path, device: str, tonight: Path) -> Path | None:
    """Results of the latest night on `device` before `tonight` that passed; UserError for a damaged verdict."""
    for path in sorted(out.glob(f"*/{VERDICT}"), reverse=True):
        if path.parent == tonight:
            continue
        try:
            verdict = json.loads(path.read_text())
            passed = verdict["passed"] and verdict["device"] == device
        except (OSError, ValueError, KeyError, TypeError):
            raise UserError(f"{path} is damaged; delete it, or name results with --against.") from None
        if passed and (path.parent / BENCH).is_dir():
            return path.parent / BENCH
    return None


def bench(night: Path) -> Part:
    """The bench as it was measured."""
    points = load_run(night / BENCH).points
    failed = [f"{point.point.label} failed: {point.error}" for point in points if point.error is not None]
    if failed:
        return Part("bench", "failed", (f"{len(failed)} of {len(points)} points failed", *failed))
    return Part("bench", "passed", (f"all {len(points)} points measured",))


def fidelity(night: Path, device: str, quick: bool) -> Part:
    """`rehearse fidelity --device DEVICE --out NIGHT/fidelity`: the mechanics decide, other numbers are only
    reported."""
    from harness.calibration import fidelity

    if device not in REAL_DEVICES:
        return Part("fidelity", "not needed", (f"device {device} is what fidelity judges",))

    def show(what: str, done: int, total: int) -> None:
        typer.echo(f"fidelity [{done}/{total}] {what}", err=True)

    try:
        report = fidelity.fidelity(device, out=night / "fidelity", quick=quick, show=show)
    except (ValueError, RuntimeError) as error:
        return Part("fidelity", "failed", (" ".join(str(error).split()),))
    why = (
        f"{load.share:.0%} load, {name}: {verdict.result}; {verdict.why}"
        for load in report.loads
        for name, verdict in load.verdicts.items()
    )
    return Part("fidelity", "passed" if report.passed else "failed", tuple(why))


def comparison(
    night: Path, before: Path | None, percent: float, chosen: bool, show: Callable[[Comparison, float], None]
) -> Part:
    """Tonight against `before`, for the user to see by `show`.

    What cannot be compared is void, unless the user has `chosen` it: then UserError.
    """
    if before is None:
        return Part("comparison", "void", ("no night that passed is stored yet; this one is the first",))
    try:
        compared = compare(before, night / BENCH)
        compared.require_judged()
    except UserError as error:
        if chosen:
            raise
        return Part("comparison", "void", (str(error),))
    show(compared, percent)
    regressions = compared.regressions(percent)
    if regressions:
        return Part("comparison", "failed", tuple(regressions))
    said = f"no metric of {len(compared.judged)} cells is worse by more than {percent:g} % than in {before}"
    return Part("comparison", "passed", (said,))


def store(night: Path, device: str, parts: list[Part]) -> bool:
    """Write verdict.json; whether the night passed."""
    passed = all(part.verdict != "failed" for part in parts)
    listed = {part.name: {"verdict": part.verdict, "why": list(part.why)} for part in parts}
    facts = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "device": device, "passed": passed}
    write_json(night / VERDICT, {**facts, "revision": revision(), "parts": listed})
    return passed
