"""Text files that are complete or absent."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rehearsal.workloads.files import output


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Write lines (without their ends) as `workloads.files.output` does."""
    with output(path) as file:
        file.writelines(f"{line}\n".encode() for line in lines)
