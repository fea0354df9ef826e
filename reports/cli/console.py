"""Where the commands print their tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def wide(least: int, stderr: bool = False) -> Console:
    """A terminal as it is; a file at least this wide, as it has no edge to fit."""
    from rich.console import Console

    console = Console(stderr=stderr)
    if not console.is_terminal:
        console.width = max(console.width, least)
    return console
