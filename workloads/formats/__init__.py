"""Traces in the formats of other programs; this package reads and writes."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from workloads.atomic_file import STDOUT
from workloads.formats import jsonl
from workloads.formats.request_logs import write_burstgpt, write_mooncake
from workloads.trace import Trace

FORMATS: dict[str, Callable[[Trace, Path], None]] = {
    "parquet": Trace.save,
    "jsonl": jsonl.write,
    "mooncake": write_mooncake,
    "burstgpt": partial(write_burstgpt, sessions=False),
    "burstgpt-sessions": partial(write_burstgpt, sessions=True),
}
"""Name of a format -> write(trace, path)."""
ENDINGS = {
    "parquet": (".parquet",),
    "jsonl": (".jsonl",),
    "mooncake": (".jsonl", ".json"),
    "burstgpt": (".csv",),
    "burstgpt-sessions": (".csv",),
}
"""Name of a format -> how the names of its files end."""


def load_trace(path: str | Path) -> Trace:
    """Read a trace file: JSON lines when its name ends in .jsonl, else Parquet; UserError if it is none."""
    return jsonl.read(path) if Path(path).suffix == ".jsonl" else Trace.load(path)


def save_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace file: JSON lines when its name ends in .jsonl or is - (standard output), else Parquet."""
    path = Path(path)
    FORMATS["jsonl" if path.suffix == ".jsonl" or path == STDOUT else "parquet"](trace, path)
