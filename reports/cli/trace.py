"""`rehearse trace`: make a trace as a file, edit or convert it, take one from a run, and look into it."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from reports.cli.completion import named
from reports.cli.output import AS_CSV, AS_JSON, emit, form_of
from reports.cli.settings import SETTINGS, Command, Group, number, one_each, option
from reports.tables.plain_tables import grid, print_tables
from workloads.atomic_file import STDOUT, check_output, output
from workloads.bounds import MOST_SEED
from workloads.errors import UserError, nearest

if TYPE_CHECKING:
    from workloads.trace import Trace

app = typer.Typer(cls=Group)
Value = TypeVar("Value")
Out = Annotated[
    Path,
    option(
        "--out",
        "File to write: JSON lines if it ends in .jsonl, else Parquet; - prints JSON lines.",
        callback=lambda path: path and check_output(path, (".parquet", ".jsonl")),
    ),
]
NONE = ("", "-", "none")
"""Word for "no deadline" for one file among several."""
PointFolder = Annotated[Path, typer.Argument(metavar="POINT", help="A point's record, DIR/points/ID.")]
TraceFile = Annotated[Path, typer.Argument(help="A trace file, .parquet or .jsonl.")]
PageFolder = Annotated[Path, option("--out", "Directory for the page and the pictures.", "DIR")]
_ROWS = 10
_COLUMNS = {
    "session": "session",
    "turn": "turn",
    "arrival s": "arrival_s",
    "speech s": "audio_s",
    "input tokens": "input_tokens",
    "output tokens": "output_tokens",
    "reply s": "reply_audio_s",
    "think s": "think_s",
    "barge-in after s": "barge_in_after_s",
}


@app.callback(invoke_without_command=True)
def _trace(context: typer.Context) -> None:
    """Make and show traces: what every user does and when."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(cls=Command)
def edit(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Trace files; several are merged.")],
    out: Out,
    cut: str | None = option(None, "Keep sessions that begin in this interval, s.", "START:END"),
    thin: float | None = option(None, "Keep each session with this probability.", "SHARE"),
    scale: float | None = option(None, "Multiply arrival times; 0.5 doubles the rate.", "FACTOR"),
    loop: int = number(1, "Play the trace N times in a row."),
    seed: int = number(0, "Seed of --thin.", least=0, most=MOST_SEED),
    request_class: str | None = option(
        None, "The class of each file's requests, or one for all.", "NAME,...", name="--class"
    ),
    priority: str | None = option(None, "Priority of each class; the lower is served first, as in vLLM.", "N,..."),
    ttft_deadline: str | None = option(None, "Deadline of each class's first tokens, s; or none.", "S,..."),
    tbt_deadline: str | None = option(None, "Longest time between tokens of each class, s; or none.", "S,..."),
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
        raise UserError("--priority, --ttft-deadline and --tbt-deadline are of a class; name it with --class.")
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
        raise UserError(f"--cut {text} is no span; write --cut START:END in seconds, such as 0:600.") from None
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
        values = [None if part.lower() in NONE else read(part) for part in parts]
    except ValueError as error:
        raise UserError(f"{option} {text}: {error}.") from None
    return values * files if len(values) == 1 else values


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


@app.command(cls=Command)
def stat(file: TraceFile, as_json: bool = AS_JSON, as_csv: bool = AS_CSV) -> None:
    """Print how a trace's users arrive, how long everything is, and how they interrupt.

    `rehearse trace stat voice.parquet`

    `rehearse trace stat voice.parquet --json`
    """
    from workloads.formats import load_trace
    from workloads.statistics.describe import statistics

    form = form_of(as_json, as_csv)
    trace = load_trace(file)
    if form != "table":
        data = statistics(trace)
        emit(form, [data], data)
        return
    from rich.console import Console

    from reports.traces.numbers import tables

    print_tables(tables(trace), Console())


@app.command(cls=Command)
def plot(
    file: TraceFile,
    out: PageFolder,
    against: Path | None = option(None, "Another trace file, to compare with.", "FILE"),
) -> None:
    """Draw a trace: arrivals, gaps, lengths, the first sessions and, where there is sound, what a user sends.

    `rehearse trace plot voice.parquet --out pictures`

    `rehearse trace plot fitted.parquet --against replayed.parquet --out pictures`
    """
    from reports.traces.page import write_trace_page
    from workloads.formats import load_trace

    other = load_trace(against) if against else None
    page = write_trace_page(load_trace(file), file.name, out, other, against.name if against else "")
    typer.echo(page)


@app.command(cls=Command)
def fidelity(
    data: Path = option(..., "Directory with the real files.", "DIR"),
    out: PageFolder = Path("results/fidelity"),
    as_json: bool = AS_JSON,
    as_csv: bool = AS_CSV,
) -> None:
    """Compare the fitted generators with the real data they were fitted to, column by column.

    `rehearse trace fidelity --data data --out results/fidelity`
    """
    from rich.console import Console

    from reports.traces.fidelity import write_fidelity_page
    from workloads.statistics.generator_fit import compare

    form = form_of(as_json, as_csv)
    comparisons = compare(data)
    page = write_fidelity_page(comparisons, out)
    if form == "table":
        shown = [
            (one.workload, one.column, one.source, f"{len(one.real):,}", f"{one.ks:.3f}", one.note)
            for one in comparisons
        ]
        Console().print(grid(("workload", "column", "source", "n real", "KS", "note"), shown))
    else:
        names = ("workload", "column", "source", "ks", "note")
        rows = [{**{name: getattr(one, name) for name in names}, "n_real": len(one.real)} for one in comparisons]
        emit(form, rows)
    typer.echo(page, err=form != "table")


@app.command(cls=Command)
def perfetto(
    folder: PointFolder,
    out: Path | None = option(
        None,
        "File to write, compressed if it ends in .gz, or -; default: ID.perfetto.json.gz here.",
        callback=lambda path: path and check_output(path, (".json", ".gz")),
    ),
) -> None:
    """Write what a run did as Chrome trace JSON: open it at ui.perfetto.dev, or in chrome://tracing.

    A process for each GPU with a thread for each stage's replica, its steps as slices with their requests and tokens,
    counters of queues and KV blocks; and every request as a slice with its phases, at each stage and at its user.

    `rehearse trace perfetto results/bench/points/ID`

    `rehearse trace perfetto results/bench/points/ID --out - | jq .otherData`
    """
    from harness.records.log_to_trace import finished_record
    from reports.replays.chrome_trace import write

    record = finished_record(folder)
    out = out or Path(f"{record.point.id}.perfetto.json.gz")
    with output(out) as file:
        if out.suffix == ".gz":
            # Without a time and a name in its head the same record gives the same bytes.
            with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
                number = write(record, packed)
        else:
            number = write(record, file)
    if out != STDOUT:
        typer.echo(f"{out}: {number:,} events; open it at https://ui.perfetto.dev")


@app.command(cls=Command)
def make(
    workload: Annotated[
        str, typer.Argument(help="A workload, see `rehearse list workloads`.", autocompletion=named("workloads"))
    ],
    out: Out,
    seed: int = number(0, "The same seed gives the same trace.", least=0, most=MOST_SEED),
    settings: list[str] = SETTINGS,
) -> None:
    """Generate a trace and write it to a file.

    `rehearse trace make voice --set p=0.3 --seed 1 --out voice.parquet`

    `rehearse trace make burstgpt --set path=BurstGPT.csv --out burst.parquet`
    """
    from workloads.registry import make_trace

    trace = make_trace(workload, one_each(settings, "a trace takes one; put it in quotes"), seed)
    save_and_describe(trace, out, noted=trace.header.params.get("path") is not None)


@app.command("from-run", cls=Command)
def from_run(
    folder: PointFolder,
    out: Out,
    arrivals: Literal["absolute", "relative"] = option(
        "absolute", "Later turns begin when they began, or as long after the reply before."
    ),
) -> None:
    """Turn the users' behaviour of a run into a trace, to replay it.

    `rehearse trace from-run results/bench/points/ID --out again.parquet`

    `rehearse run mine.yaml --set workload=file --set path=again.parquet`
    """
    from harness.records.log_to_trace import from_record

    save_and_describe(from_record(folder, arrivals), out)


@app.command(cls=Command)
def convert(
    file: TraceFile,
    to: str = option(..., "parquet, jsonl, mooncake, burstgpt or burstgpt-sessions.", "FORMAT"),
    out: Path = option(..., "File to write, or -."),
) -> None:
    """Write a trace in another format, for other tools or for people.

    jsonl loses nothing and can be read back. mooncake and burstgpt keep times and lengths of requests; a turn that
    follows a pause gets the time it has when the server answers at once. burstgpt has the six columns that most
    tools read, burstgpt-sessions two more, with the session of each request.

    `rehearse trace convert voice.parquet --to mooncake --out voice.jsonl`
    """
    from workloads.formats import ENDINGS, FORMATS, load_trace

    if to not in FORMATS:
        raise UserError(f"unknown format {to!r}.{nearest(to, FORMATS)}")
    check_output(out, ENDINGS[to])
    FORMATS[to](load_trace(file), out)
    if out != STDOUT:
        typer.echo(out)


@app.command(cls=Command)
def show(file: TraceFile, as_json: bool = AS_JSON, as_csv: bool = AS_CSV) -> None:
    """Show how a trace was made, what it holds and its first turns; as JSON or CSV, all of its turns."""

    from rich.console import Console

    from workloads.columns.classes import in_order
    from workloads.formats import load_trace
    from workloads.statistics.describe import notes

    form = form_of(as_json, as_csv)
    trace = load_trace(file)
    if form != "table":
        emit(form, [turn.row() for session in trace.sessions for turn in session.turns])
        return
    header = trace.header
    typer.echo(f"{header.generator}, seed {header.seed}, hash {header.hash[:16]}")
    typer.echo("  ".join(f"{name}={value}" for name, value in header.params.items()))
    for note in notes(trace):
        typer.echo(note)
    describe_trace(trace)
    turns = [turn for session in trace.sessions for turn in session.turns][:_ROWS]
    columns = _COLUMNS | ({"class": "request_class"} if in_order(trace.columns()) else {})
    rows = [[cell(row[name]) for name in columns.values()] for row in (turn.row() for turn in turns)]
    Console().print(grid([*columns], rows, title=f"first {len(turns)} turns"))


def save_and_describe(trace: Trace, out: Path, noted: bool = False) -> None:
    """Write the trace and print its content; on stderr if the trace goes to standard output. `noted`: what it lacks of
    its source was printed as the file was read."""
    from workloads.formats import save_trace
    from workloads.statistics.describe import left_out

    save_trace(trace, out)
    describe_trace(trace, err=out == STDOUT)
    for note in [] if noted else left_out(trace):
        typer.echo(note, err=out == STDOUT)
    if out != STDOUT:
        typer.echo(f"\n{out}")


def describe_trace(trace: Trace, err: bool = False) -> None:
    """Print the content of a trace in numbers."""
    from rich.console import Console

    from workloads.statistics.describe import describe

    rows = [(name, cell(value)) for name, value in describe(trace).items()]
    Console(stderr=err).print(grid((), rows))


def cell(value: object) -> str:
    """A value of a trace as a table shows it."""
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
