"""Entry points of other packages. They take too long to look up to do so more than once."""

import traceback
from functools import cache
from importlib import metadata
from typing import Any

from workloads.errors import UserError


def entry_points(group: str) -> metadata.EntryPoints:
    return _all().select(group=group)


def load(entry: metadata.EntryPoint) -> Any:
    """Import what an entry point names. UserError with the faulty line where another package fails: every command
    imports all packages, and would blame Rehearsal otherwise."""
    try:
        return entry.load()
    except UserError:
        raise
    except Exception as error:
        named = f"which an installed package names as {entry.name} of {entry.group}"
        raise UserError(
            f"cannot load {entry.value}, {named}: {fault(error)}. Correct or uninstall that package."
        ) from error


def fault(error: Exception, folder: str = "") -> str:
    """Return an exception of another package's code in one line, with the last line of a file below `folder` that led
    to it."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    lines = [
        f" ({each.filename}, line {each.lineno})"
        for each in frames
        if each.filename.startswith(folder) and "importlib" not in each.filename
    ]
    kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    return f"{kind}{' '.join(str(error).split()).rstrip('.')}{lines[-1] if lines else ''}"


@cache
def _all() -> Any:
    return metadata.entry_points()
