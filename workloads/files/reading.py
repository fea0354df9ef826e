"""Sentences on a file that a command reads: how much was used, and what was dropped or changed."""

import logging
from collections.abc import Sequence
from functools import cache
from pathlib import Path

_log = logging.getLogger(__name__)


def say(path: Path, notes: Sequence[str]) -> None:
    """Print the notes on a file, once for each process: in the first lines of any command, as it reads before it does
    anything else."""
    _say(path, tuple(notes))


@cache
def _say(path: Path, notes: tuple[str, ...]) -> None:
    for note in notes:
        _log.warning("%s: %s.", path, note)
