"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from rehearsal.workloads.errors import UserError
from rehearsal.workloads.files import check_output

Settings = Annotated[
    list[str],
    typer.Option("--set", metavar="NAME=VALUE", help="Set a parameter; may be given several times."),
]


ExecutorName = Annotated[
    str,
    typer.Option(
        "--executor",
        metavar="local|auto|ray://HOST:PORT|slurm",
        help="Where points run: this machine, a Ray cluster (auto: the one it belongs to), or Slurm.",
    ),
]

Partition = Annotated[
    str | None, typer.Option("--partition", metavar="NAME", help="Partition of Slurm; default: its own.")
]

Sbatch = Annotated[
    list[str],
    typer.Option(
        "--sbatch", metavar="NAME=VALUE", help="Another option of sbatch; may be given several times."
    ),
]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the points and run nothing.")]


def parse_settings(texts: list[str]) -> dict[str, str]:
    """["c=4,8"] -> {"c": "4,8"}; UserError for anything that is not NAME=VALUE, or a name given twice."""
    return _named(texts, "--set", "c=16", "write --set {name}={first},{second} for both")


def sbatch_options(partition: str | None, texts: list[str]) -> dict[str, str]:
    """What --partition and --sbatch say, by sbatch's own names; UserError as above."""
    given = [] if partition is None else [f"partition={partition}"]
    return _named([*given, *texts], "--sbatch", "time=60", "give it once")


def _named(texts: list[str], option: str, example: str, both: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise UserError(f"{option} {text} is not NAME=VALUE; write for example {option} {example}.")
        if name in settings:
            mend = both.format(name=name, first=settings[name], second=value)
            raise UserError(f"{option} {name} is given twice; {mend}.")
        settings[name] = value
    return settings


def order_seed(text: str | None, default: int | None) -> int | None:
    """The seed that --shuffle gives, or None for the order of the experiment; `default` where it is not given."""
    if text is None:
        return default
    if text == "none":
        return None
    if not text.isdecimal():
        raise UserError(f"--shuffle {text}: give a seed, a whole number from 0 on, or none.")
    return int(text)


def written_as(*endings: str) -> Callable[[Path | None], Path | None]:
    """A callback for an option that names a file to write, of a format whose names end so."""

    def check(path: Path | None) -> Path | None:
        return path and check_output(path, endings)

    return check


def at_least(minimum: int) -> Callable[[str | int], int]:
    """A parser for an option that counts; its sentence names the value and what is allowed."""

    def parse(text: str | int) -> int:
        try:
            value = int(text)
        except ValueError:
            raise typer.BadParameter(f"it must be a whole number, got {text!r}") from None
        if value < minimum:
            raise typer.BadParameter(f"it must be at least {minimum}, got {value}")
        return value

    return parse
