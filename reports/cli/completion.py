"""Arguments whose names the shell completes, from the tables of `rehearse list`."""

from collections.abc import Callable
from typing import Any

import typer

from workloads.deferred import Deferred

KINDS = Deferred("reports.cli.listing:KINDS", loaded=False)


def named(kind: str) -> Callable[[str], list[tuple[str, str]]]:
    """Return the shell completion for names of a kind: (name, summary) of each that fits."""

    def complete(incomplete: str) -> list[tuple[str, str]]:
        rows = kinds[kind].brief() if kind in (kinds := KINDS.load()) else []
        return [(row["name"], row["summary"]) for row in rows if row["name"].startswith(incomplete)]

    return complete


def source_of(help: str) -> Any:
    """Return the argument that names the experiment."""
    return typer.Argument(metavar="CARD_YAML_OR_DIR", help=help, autocompletion=named("cards"))
