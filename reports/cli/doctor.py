"""`rehearse doctor`: what this machine can run, and why not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reports.cli.console import wide

if TYPE_CHECKING:
    from harness.doctor.check import Check

_STYLES = {"ok": "green", "missing": "yellow", "broken": "bold red", "not needed": "dim"}


def doctor(
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="A folder of recordings or data sets to look into."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what this machine can run, and why not; exit status 1 when not even virtual time is possible.

    `rehearse doctor`

    `rehearse doctor --data recordings`

    `rehearse doctor --json`
    """
    import json
    from dataclasses import asdict

    from harness.doctor import examine, runs_virtual

    checks = examine(data)
    ready = runs_virtual(checks)
    if as_json:
        devices = {check.what: check.state == "ok" for check in checks if check.group == "devices"}
        listed = [asdict(check) for check in checks]
        typer.echo(json.dumps({"virtual": ready, "devices": devices, "checks": listed}, indent=1))
    else:
        _show(checks)
    raise typer.Exit(0 if ready else 1)


def _show(checks: list[Check]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "what", "state"):
        table.add_column(heading, no_wrap=True)
    table.add_column("why, or what to do")
    group = None
    for check in checks:
        if group not in (None, check.group):
            table.add_section()
        shown = "" if group == check.group else check.group
        group = check.group
        table.add_row(shown, check.what, Text(check.state, _STYLES[check.state]), Text(check.why))
    console = wide(120)
    console.print(table)
    devices = [check for check in checks if check.group == "devices"]
    able = [check.what for check in devices if check.state == "ok"]
    console.print(
        f"This machine can run device {' and '.join(able)}." if able else "Nothing can run here yet."
    )
