"""`rehearse trace edit`: traces labelled, merged, cut, thinned, stretched or looped into a new one; and what every
command that makes a trace writes and prints of it."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from reports.cli.settings import number, option, written_as
from workloads.atomic_file import STDOUT
from workloads.errors import UserError

if TYPE_CHECKING:
    from workloads.trace import Trace

Value = TypeVar("Value")
Out = Annotated[
    Path,
    option(
        "--out",
        "File to write: JSON lines if it ends in .jsonl, else Parquet; - prints JSON lines.",
        callback=written_as(".parquet", ".jsonl"),
    ),
]
NONE = ("", "-", "none")
"""Word for "no deadline" for one file among several."""


def edit(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Trace files; several are merged.")],
    out: Out,
    cut: str | None = option(None, "Keep sessions that begin in this interval, s.", "START:END"),
    thin: float | None = option(None, "Keep each session with this probability.", "SHARE"),
    scale: float | None = option(None, "Multiply arrival times; 0.5 doubles the rate.", "FACTOR"),
    loop: int = number(1, "Play the trace N times in a row."),
    seed: int = number(0, "Seed of --thin.", least=0),
    request_class: str | None = option(
        None, "The class of each file's requests, or one for all.", "NAME,...", name="--class"
    ),
    priority: str | None = option(
        None, "Priority of each class; the lower is served first, as in vLLM.", "N,..."
    ),
    ttft_deadline: str | None = option(None, "Deadline of each class's first tokens, s; or none.", "S,..."),
    tbt_deadline: str | None = option(
        None, "Longest time between tokens of each class, s; or none.", "S,..."
    ),
) -> None:
    """Make a trace of others: labelled, merged, then cut, thinned, scaled in time and looped. Each step is noted.

    `rehearse trace edit a.parquet b.parquet --cut 0:600 --scale 0.5 --out c.jsonl`

    `rehearse trace edit chat.jsonl --class online --priority 0 --out c.jsonl`
    """
    from workloads.formats import load_trace
    from workloads.transforms import transform

    values = (
        _each("--class", request_class, len(files), str),
        _each("--priority", priority, len(files), _whole),
        _each("--ttft-deadline", ttft_deadline, len(files), _seconds),
        _each("--tbt-deadline", tbt_deadline, len(files), _seconds),
    )
    if request_class is None and (priority, ttft_deadline, tbt_deadline) != (None, None, None):
        raise UserError(
            "--priority, --ttft-deadline and --tbt-deadline are of a class; name it with --class."
        )
    traces = [load_trace(file) for file in files]
    if request_class is not None:
        traces = [
            transform.classify(trace, name or "", priority=urgency, ttft_deadline_s=ttft, tbt_deadline_s=tbt)
            for trace, name, urgency, ttft, tbt in zip(traces, *values, strict=True)
        ]
    trace = traces[0] if len(traces) == 1 else transform.merge(traces)
    if cut is not None:
        trace = transform.cut(trace, *_span(cut))
    if thin is not None:
        trace = transform.thin(trace, thin, seed)
    if scale is not None:
        trace = transform.scale_time(trace, scale)
    if loop > 1:
        trace = transform.loop(trace, loop)
    save_and_describe(trace, out)


def _span(text: str) -> tuple[float, float]:
    try:
        start, end = map(float, text.split(":"))
    except ValueError:
        raise UserError(
            f"--cut {text} is no span; write --cut START:END in seconds, such as 0:600."
        ) from None
    return start, end


def _each(option: str, text: str | None, files: int, read: Callable[[str], Value]) -> list[Value | None]:
    """Return the value for each file: from a list of that length, or one for all; None without any."""
    if text is None:
        return [None] * files
    parts = [part.strip() for part in text.split(",")]
    if len(parts) not in (1, files):
        raise UserError(
            f"{option} {text} has {len(parts)} values for {files} file{'s' if files > 1 else ''}; "
            "give one for all, or one for each."
        )
    try:
        found = [None if part.lower() in NONE else read(part) for part in parts]
    except ValueError as error:
        raise UserError(f"{option} {text}: {error}.") from None
    return found * files if len(found) == 1 else found


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is no whole number, such as 0 or 10") from None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = float("nan")
    if not isfinite(seconds) or seconds <= 0:
        raise ValueError(f"{text!r} is no time in seconds above 0, such as 1.5; write none for no deadline")
    return seconds


def save_and_describe(trace: Trace, out: Path) -> None:
    """Write the trace and print its content; on stderr if the trace goes to standard output."""
    from workloads.formats import save_trace

    save_trace(trace, out)
    describe_trace(trace, err=out == STDOUT)
    if out != STDOUT:
        typer.echo(f"\n{out}")


def describe_trace(trace: Trace, err: bool = False) -> None:
    """Print the content of a trace in numbers."""
    from rich.console import Console
    from rich.table import Table

    from workloads.statistics.describe import describe

    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in describe(trace).items():
        table.add_row(name, cell(value))
    Console(stderr=err).print(table)


def cell(value: object) -> str:
    """A value of a trace as a table shows it."""
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
