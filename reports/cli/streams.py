"""The standard streams of a command: all three are open, and its output survives its readers and a full disk."""

import io
import os
import sys
from typing import Any


class _Output(io.FileIO):
    """A standard stream. When its reader has closed the pipe, as `| head` does, it drops what is written: the command
    goes on, and ends with its own status."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            _to_nowhere(self.fileno())
            return len(data)


def open_streams() -> None:
    """Open the standard streams that the shell has closed, since a file or a socket would get their numbers, and let
    the output survive its readers."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number, this one
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115  (it stays open)
    sys.stdout = _surviving(1, sys.stdout)
    sys.stderr = _surviving(2, sys.stderr)


def _surviving(number: int, stream: Any) -> Any:
    """Return a stream like `stream` that survives its readers; `stream` itself where it is no file of this number."""
    if stream is None:
        return open(number, "w", encoding="utf-8", closefd=False)
    raw = getattr(getattr(stream, "buffer", None), "raw", getattr(stream, "buffer", None))
    if not isinstance(raw, io.FileIO) or raw.fileno() != number:
        return stream
    output = _Output(number, "wb", closefd=False)
    alike = {name: getattr(stream, name) for name in ("encoding", "errors", "line_buffering", "write_through")}
    return io.TextIOWrapper(io.BufferedWriter(output), **alike)


def flush_or_drop() -> None:
    """Print the buffered output or discard it: Python would otherwise try again at exit, and complain."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _to_nowhere(stream.fileno())


def _to_nowhere(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
