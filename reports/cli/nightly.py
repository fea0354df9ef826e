"""`rehearse nightly`: the bench on real execution, its fidelity, and the comparison with the last good night."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reports.cli import run
from reports.cli.compare import show, worse_by
from reports.cli.output import tell, wide
from reports.cli.settings import Settings, number, option
from workloads.errors import UserError

if TYPE_CHECKING:
    from reports.comparison.nightly import Part

_STYLES = {"passed": "green", "failed": "bold red", "void": "yellow", "not needed": "dim"}


def nightly(
    device: Annotated[str, option("--device", "See `rehearse list devices`.")] = "cuda",
    settings: Settings = [],  # noqa: B006  (typer copies it)
    seeds: Annotated[int | None, number("--seeds", "Seeds 0 to N-1; default: 3, or 1 with --quick.")] = None,
    quick: Annotated[bool, option("--quick", "The bench's small version, on one seed.")] = False,
    out: Annotated[Path, option("--out", "Where the nights are kept.", "DIR")] = Path("results/nightly"),
    against: Annotated[
        Path | None,
        option("--against", "Results directory to compare with; default: the last night that passed.", "DIR"),
    ] = None,
    fail_above: Annotated[
        float, worse_by("A metric fails when it got worse by more than this, and on every seed.")
    ] = 10.0,
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
            quick=quick,
            out=night / BENCH,
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
