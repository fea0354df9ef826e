"""`rehearse trace`: make a trace as a file, take one from a run, convert it, and look into it."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from reports.cli import trace_edit, trace_pictures
from reports.cli.listing import named
from reports.cli.output import AS_CSV, AS_JSON, emit, form_of
from reports.cli.settings import SETTINGS, Command, Group, PointFolder, number, one_each, option
from reports.cli.trace_edit import Out, cell, describe_trace, save_and_describe
from workloads.atomic_file import STDOUT, check_output
from workloads.errors import UserError, nearest

app = typer.Typer(cls=Group)
app.command("edit", cls=Command)(trace_edit.edit)
app.command("stat", cls=Command)(trace_pictures.stat)
app.command("plot", cls=Command)(trace_pictures.plot)
app.command("fidelity", cls=Command)(trace_pictures.fidelity)
app.command("perfetto", cls=Command)(trace_pictures.perfetto)
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
def make(
    workload: Annotated[
        str,
        typer.Argument(help="A workload, see `rehearse list workloads`.", autocompletion=named("workloads")),
    ],
    out: Out,
    seed: int = number(0, "The same seed gives the same trace.", least=0),
    settings: list[str] = SETTINGS,
) -> None:
    """Generate a trace and write it to a file.

    `rehearse trace make voice --set p=0.3 --seed 1 --out voice.parquet`

    `rehearse trace make burstgpt --set path=BurstGPT.csv --out burst.parquet`
    """
    from harness.experiments.experiment import renamed
    from workloads.registry import make_trace

    params = renamed(one_each(settings, "a trace takes one; put it in quotes"), workload)
    trace = make_trace(workload, params, seed)
    save_and_describe(trace, out)


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
    file: trace_pictures.TraceFile,
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
def show(file: trace_pictures.TraceFile, as_json: bool = AS_JSON, as_csv: bool = AS_CSV) -> None:
    """Show how a trace was made, what it holds and its first turns; as JSON or CSV, all of its turns."""

    from rich.console import Console
    from rich.table import Table

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
    table = Table(*columns, title=f"first {len(turns)} turns", title_justify="left", box=None, pad_edge=False)
    for turn in turns:
        row = turn.row()
        table.add_row(*(cell(row[name]) for name in columns.values()))
    Console().print(table)
