"""Text files that are complete or absent."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from workloads.errors import UserError


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Write lines (without their ends) to `path`; UserError when the place cannot be written."""
    path = Path(path)
    draft = path.parent / f".{path.name}.{os.getpid()}"
    try:
        with draft.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise UserError(
            f"cannot write {path}: {error.strerror}; choose a file in a writable folder."
        ) from None
