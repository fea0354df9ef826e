"""`rehearse nightly`: the bench on real execution, its fidelity, and the comparison with the last good night."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from reports.cli import run
from reports.cli.compare import show, worse_by
from reports.cli.output import tell, wide
from reports.cli.settings import SETTINGS, flag, number, option
from workloads.errors import UserError

if TYPE_CHECKING:
    from reports.comparison.nightly import Part

_STYLES = {"passed": "green", "failed": "bold red", "void": "yellow", "not needed": "dim"}


def nightly(
    device: str = option("cuda", "See `rehearse list devices`."),
    settings: list[str] = SETTINGS,
    seeds: int | None = number(None, "Seeds 0 to N-1; default: 3, or 1 with --quick."),
    quick: bool = flag("--quick", "The bench's small version, on one seed."),
    out: Path = option(Path("results/nightly"), "Where the nights are kept.", "DIR"),
    against: Path | None = option(
        None, "Results directory to compare with; default: the last night that passed.", "DIR"
    ),
    fail_above: float = worse_by(
        10.0, "A metric fails when it got worse by more than this, and on every seed."
    ),
) -> None:
    """Run the bench on real execution, check the model's fidelity, and compare with the last night that passed.

    The exit status is 0 if all of it passed, and 1 if a point failed, fidelity missed or a metric got worse. No night
    is compared with a failed one, so the alarm stays until the cause is fixed, or --against replaces the
    comparison.

    `rehearse nightly --device cuda`

    `rehearse nightly --device virtual --quick`

    `rehearse nightly --against results/nightly/2026-01-31/bench`
    """
    from engines.deployments.available import missing
    from engines.devices.names import check_device
    from harness.metrics.stats import MIN_FOR_INTERVAL
    from reports.comparison.nightly import BENCH, bench, comparison, fidelity, folder_of, last_passed, store
    from reports.runs.measured import load_run

    check_device(device)
    if reason := missing(device):
        raise UserError(reason)
    if against is not None:
        load_run(against)
    night = folder_of(out, device)
    before = against or last_passed(out, device, night)
    try:
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
    except typer.Exit as end:
        if end.exit_code not in (0, 1):
            raise  # interrupted: the same command again resumes
    parts = [
        bench(night),
        fidelity(night, device, quick),
        comparison(night, before, fail_above, chosen=against is not None, show=show),
    ]
    passed = store(night, device, parts)
    _show(parts, night)
    raise typer.Exit(0 if passed else 1)


def _show(parts: list[Part], night: Path) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from reports.comparison.nightly import VERDICT

    table = Table("nightly", "verdict", "why", box=SIMPLE_HEAD, pad_edge=False)
    for part in parts:
        table.add_row(part.name, Text(part.verdict, _STYLES[part.verdict]), Text("\n".join(part.why)))
    console = wide(120)
    console.print(table)
    tell(console, [night / VERDICT])
