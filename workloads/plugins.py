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
        frames = traceback.extract_tb(error.__traceback__)[1:]
        lines = [
            f" ({each.filename}, line {each.lineno})" for each in frames if "importlib" not in each.filename
        ]
        raise UserError(
            f"cannot load {entry.value}, which an installed package names as {entry.name} of {entry.group}: "
            f"{type(error).__name__}: {error}{lines[-1] if lines else ''}. Correct or uninstall that package."
        ) from error


@cache
def _all() -> Any:
    return metadata.entry_points()
