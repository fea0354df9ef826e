"""Text files that are complete or absent."""

from collections.abc import Iterable
from pathlib import Path

from workloads.atomic_file import output


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Write lines (without their ends) as `workloads.atomic_file.output` does."""
    with output(path) as file:
        file.writelines(f"{line}\n".encode() for line in lines)
