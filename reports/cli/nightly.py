"""`rehearse nightly`: the bench on real execution, its fidelity, and the comparison with the last good night.

DIR/DATE/bench/          results of the bench, as of any run
DIR/DATE/fidelity/       what `rehearse fidelity` wrote
DIR/DATE/verdict.json    {date, device, revision, passed, parts: {name: {verdict, why}}}
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import typer

from harness.exit_status import FAIL, OK, UNDECIDED
from reports.cli import run
from reports.cli.compare import show, worse_by
from reports.cli.output import tell, wide
from reports.cli.settings import SETTINGS, flag, number, option
from reports.tables.plain_tables import grid
from workloads.errors import UserError

VERDICT = "verdict.json"
BENCH = "bench"
"""The card, and the folder in a night that its results are in."""
_DEFAULT = "cuda"
_STYLES = {"passed": "green", "failed": "bold red", "void": "yellow", "not needed": "dim"}


def nightly(
    device: str = option(_DEFAULT, "See `rehearse list devices`."),
    settings: list[str] = SETTINGS,
    seeds: int | None = number(None, "Seeds 0 to N-1; default: 3, or 1 with --quick."),
    quick: bool = flag("--quick", "The bench's small version, on one seed."),
    out: Path = option(Path("results/nightly"), "Where the nights are kept.", "DIR"),
    against: Path | None = option(
        None, "Results directory to compare with; default: the last night that passed.", "DIR"
    ),
    fail_above: float = worse_by(10.0, "A metric fails when it got worse by more than this, and on every seed."),
) -> None:
    """Run the bench on real execution, check the model's fidelity, and compare with the last night that passed.

    Exit status: 0 all of it passed. 1 a point failed, fidelity missed or a metric got worse. 3 points are INVALID, and
    nothing failed. No night is compared with a failed one, so the alarm stays until the cause is fixed, or --against
    replaces the comparison.

    `rehearse nightly --device cuda`

    `rehearse nightly --device virtual --quick`

    `rehearse nightly --against results/nightly/2026-01-31/bench`
    """
    from engines.deployments.available import missing
    from harness.metrics.stats import MIN_FOR_INTERVAL
    from reports.runs.measured import load_run
    from workloads.devices import check_device

    check_device(device)
    if reason := missing(device):
        raise UserError(reason)
    if against is not None:
        load_run(against)
    date = datetime.now(UTC).date().isoformat()  # the same night again resumes there
    night = out / (date if device == _DEFAULT else f"{date}-{device}")
    before = against or _last_passed(out, device, night)
    with contextlib.suppress(typer.Exit):  # the parts say what failed
        run.run(
            BENCH,
            settings=settings,
            seeds=seeds or (1 if quick else MIN_FOR_INTERVAL),
            device=device,
            profile=None,
            jobs=None,
            out=night / BENCH,
            shuffle=None,
            vllm=None,
            executor="local",
            quick=quick,
            dry_run=False,
            columns=None,
            as_json=False,
            as_csv=False,
        )
    parts = [
        _bench(night),
        _fidelity(night, device, quick),
        _comparison(night, before, fail_above, chosen=against is not None),
    ]
    failed = any(part.verdict == "failed" for part in parts)
    passed = not failed and parts[0].verdict == "passed"
    _store(night, device, passed, parts)
    _show(parts, night)
    raise typer.Exit(OK if passed else FAIL if failed else UNDECIDED)


@dataclass(frozen=True)
class Part:
    """One of the three results of a night; `void` could not be judged, and does not fail the night. A night whose bench
    is void has not passed."""

    name: str
    verdict: Literal["passed", "failed", "void", "not needed"]
    why: tuple[str, ...]


def _last_passed(out: Path, device: str, tonight: Path) -> Path | None:
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


def _bench(night: Path) -> Part:
    """The bench as it was measured."""
    from reports.runs.measured import load_run

    points = load_run(night / BENCH).points
    failed = [point for point in points if point.error is not None]
    if failed:
        verdict = "void" if all(point.record.invalid for point in failed) else "failed"
        why = (f"{point.point.label} failed: {point.error}" for point in failed)
        return Part("bench", verdict, (f"{len(failed)} of {len(points)} points failed", *why))
    return Part("bench", "passed", (f"all {len(points)} points measured",))


def _fidelity(night: Path, device: str, quick: bool) -> Part:
    """`rehearse fidelity --device DEVICE --out NIGHT/fidelity`: the mechanics decide, other numbers are only
    reported."""
    from harness.calibration import fidelity
    from workloads.devices import REAL_DEVICES

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


def _comparison(night: Path, before: Path | None, percent: float, chosen: bool) -> Part:
    """Print tonight against `before`. What cannot be compared is void, unless the user has `chosen` it: then
    UserError."""
    from reports.comparison.compare import compare

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
    text = f"no metric of {len(compared.judged)} cells is worse by more than {percent:g} % than in {before}"
    return Part("comparison", "passed", (text,))


def _store(night: Path, device: str, passed: bool, parts: list[Part]) -> None:
    from harness.experiments.provenance import revision
    from harness.records.record import write_json

    listed = {part.name: {"verdict": part.verdict, "why": list(part.why)} for part in parts}
    facts = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "device": device, "passed": passed}
    write_json(night / VERDICT, {**facts, "revision": revision(), "parts": listed})


def _show(parts: list[Part], night: Path) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.text import Text

    rows = [(part.name, Text(part.verdict, _STYLES[part.verdict]), Text("\n".join(part.why))) for part in parts]
    console = wide(120)
    console.print(grid(("nightly", "verdict", "why"), rows, box=SIMPLE_HEAD))
    tell(console, [night / VERDICT])
