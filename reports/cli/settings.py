"""Options that several commands share."""

from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from workloads.bounds import MOST_INTEGER
from workloads.errors import UserError, printable


def _without_type(params: Sequence[Any]) -> Sequence[Any]:
    """Leave out the type that typer names after a flag."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class Command(TyperCommand):
    """A command whose help names no type of a flag."""

    def get_params(self, ctx: Any) -> Any:
        return _without_type(super().get_params(ctx))


class Group(TyperGroup):
    """Commands below one name, whose help names no type of a flag."""

    def get_params(self, ctx: Any) -> Any:
        return _without_type(super().get_params(ctx))


def option(default: Any, help: str, metavar: str | None = None, name: str | None = None, **more: Any) -> Any:
    """Return an option as the default of its parameter, whose name it has if no `name` is given."""
    return typer.Option(default, *filter(None, [name]), help=help, metavar=metavar, **more)


def flag(name: str, help: str, **more: Any) -> Any:
    """Return an option without a value, as the default of its parameter."""
    return typer.Option(False, name, help=help, **more)


def number(
    default: int | None,
    help: str,
    metavar: str | None = "N",
    name: str | None = None,
    least: int = 1,
    most: int = MOST_INTEGER,
    **more: Any,
) -> Any:
    """Return an option for a whole number from `least` to `most`; its error names the value and the allowed range."""

    def parse(text: str | int) -> int:
        try:
            if "_" in str(text):  # Python's own way to group digits
                raise ValueError
            value = int(text)
        except ValueError:
            raise typer.BadParameter(f"it must be a whole number, got {printable(str(text), 40)!r}") from None
        if not least <= value <= most:
            limit = f"at least {least}" if value < least else f"at most {most}"
            raise typer.BadParameter(f"it must be {limit}, got {printable(str(value), 40)}")
        return value

    return option(default, help, metavar, name, parser=parse, **more)


SETTINGS = option([], "Set a parameter; may be given several times.", "NAME=VALUE", name="--set")
EXECUTOR = option(
    "local",
    "Where points run: this machine, or a Ray cluster (auto: the one it belongs to).",
    "local|auto|ray://HOST:PORT",
)
DRY_RUN = flag("--dry-run", "Print the points and run nothing.")
QUICK = flag("--quick", "The card's small version, on one seed.")


def one_each(texts: Sequence[str], fix: str) -> dict[str, Any]:
    """Return the one value of each name that `--set` gives. UserError for several values, which ends with `fix`: "a
    server has one; choose one"."""
    from harness.experiments.settings import parse_setting, read_settings

    values: dict[str, Any] = {}
    for name, text in read_settings(texts).items():
        several = parse_setting(name, text)
        if len(several) != 1:
            raise UserError(f"--set {name}={text} has {len(several)} values, and {fix}.")
        values[name] = several[0]
    return values
