"""Entry points of other packages. They take too long to look up to do so more than once."""

from functools import cache
from importlib import metadata
from typing import Any


def entry_points(group: str) -> metadata.EntryPoints:
    """Return the entry points of a group."""
    return _all().select(group=group)


@cache
def _all() -> Any:
    return metadata.entry_points()
