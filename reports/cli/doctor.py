"""`rehearse doctor`: what this machine can run, and why not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from harness.exit_status import FAIL, OK
from reports.cli.output import AS_CSV, AS_JSON, emit, form_of
from reports.cli.settings import flag, option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.doctor import Check

_STYLES = {"ok": "green", "missing": "yellow", "broken": "bold red", "not needed": "dim"}
_WIDTHS = (8, 12, 11)
"""Widths of the columns before the last. Lines are printed as they become known, before the longest is known."""


def doctor(
    data: Path | None = option(None, "A folder of recordings or data sets to look into.", "DIR"),
    load: bool = flag("--load", "Also load vLLM, as a run does; takes 10 s or more."),
    as_json: bool = AS_JSON,
    as_csv: bool = AS_CSV,
) -> None:
    """Report what this machine can run, and why not. The exit status is 1 if not even virtual time is possible.

    Use --load if runs fail although every other check passes.

    `rehearse doctor`

    `rehearse doctor --load`

    `rehearse doctor --data recordings`

    `rehearse doctor --json`
    """
    from dataclasses import asdict

    from harness.doctor import examine, runs_virtual

    form = form_of(as_json, as_csv)
    coming = examine(data, load)
    checks = list(told_as_found(coming) if form == "table" else coming)
    ready = runs_virtual(checks)
    if form != "table":
        rows: list[dict[str, Any]] = [asdict(check) for check in checks]
        devices = {check.what: check.state == "ok" for check in checks if check.group == "devices"}
        emit(form, rows, {"virtual": ready, "devices": devices, "checks": rows})
    raise typer.Exit(OK if ready else FAIL)


def told_as_found(checks: Iterator[Check]) -> Iterator[Check]:
    """The same, each printed as it comes, and what follows from all of them."""
    from rich.table import Table
    from rich.text import Text

    from reports.cli.output import wide

    console = wide(120)
    group, able = "", []
    for check in checks:
        line = Table(box=None, show_header=False, pad_edge=False)
        for width in _WIDTHS:
            line.add_column(width=width, no_wrap=True)
        line.add_column()
        first = check.group if check.group != group else ""
        line.add_row(first, check.what, Text(check.state, _STYLES[check.state]), Text(check.why))
        if first and group:
            console.print()
        console.print(line)
        group = check.group
        if group == "devices" and check.state == "ok":
            able.append(check.what)
        yield check
    nothing = "No device can run here yet; rehearse live, which calls servers, needs none."
    console.print(f"\nThis machine can run device {' and '.join(able)}." if able else f"\n{nothing}")
