"""Names of the files with the sound of calls, which a record keeps (`harness.live.endpoints.call_recorder`)."""

from pathlib import Path

CALL = "call-"
"""Begins the name of a file, before the session's number."""


def session_of(path: Path) -> int:
    """Return the session in a file's name."""
    return int(path.stem.removeprefix(CALL))
