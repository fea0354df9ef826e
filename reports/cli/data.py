"""`rehearse data`: bring recorded speech and public data sets to this machine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from reports.cli.settings import Command, Group, flag, option

app = typer.Typer(cls=Group)
_SPEECH = "debian, librispeech, or a folder of recordings."


@app.callback(invoke_without_command=True)
def _data(context: typer.Context) -> None:
    """Bring recorded speech and public data sets to this machine."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(cls=Command)
def speech(
    source: str = option(..., _SPEECH, "SOURCE", name="--from"),
    out: Path = option(..., "Folder to fill."),
    skip_bad: bool = flag("--skip-bad", "Pass over unusable recordings of a folder and count them."),
) -> None:
    """Obtain recorded speech for workload speech, with a manifest of checksums and licences.

    debian takes two packages by apt-get: 578 recordings, 12 MB. librispeech takes 2,620 sentences of 40 speakers, 350
    MB.

    `rehearse data speech --from debian --out speech`

    `rehearse data speech --from librispeech --out speech`

    `rehearse data speech --from recordings --out speech --skip-bad`
    """
    from workloads.audio.library import counted
    from workloads.audio.obtain import MANIFEST, obtain

    with _progress() as show:
        got = obtain(source, out, skip_bad, show)
    typer.echo(f"{got.recordings} recordings, {got.seconds:.0f} s of sound in {out}, listed in {out / MANIFEST}")
    if got.passed_over:
        typer.echo(f"{got.passed_over.total()} files passed over: {counted(got.passed_over)}")
    typer.echo(f"rehearse trace make speech --set path={out} --out speech.parquet")


@app.command(cls=Command)
def fetch(
    name: Annotated[
        str, typer.Argument(help="NAME, NAME/FILE for one file of it, or hf://datasets/OWNER/NAME@COMMIT/FILE.")
    ],
    out: Path = option(..., "Folder to fill."),
    rows: int | None = option(None, "Rows to take of a set that is streamed.", "N", min=1),
) -> None:
    """Fetch a public data set at its pinned revision and check it.

    Names: sharegpt, sharegpt_90k, burstgpt, burstgpt_2, burstgpt_without_fails, streamingbench, streamingbench_real,
    dureader, multinews, librispeech. An interrupted download continues. Files that exist are only checked. dureader
    is streamed by the package datasets.

    `rehearse data fetch burstgpt/BurstGPT_3.csv --out data`

    `rehearse data fetch dureader --out data`
    """
    from workloads.files import hub

    wanted = hub.dataset(name)
    typer.echo(f"{wanted.summary}; revision {wanted.revision}; licence: {wanted.licence}")
    for path in hub.fetch(wanted, out, rows):
        typer.echo(str(path))


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr where it is a terminal, from the first recording on: a download shows its own before."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("recordings"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    bar = Progress(*columns, console=console, disable=not console.is_terminal)
    task = bar.add_task("recordings", total=None)

    def show(done: int, total: int) -> None:
        bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield show
    finally:
        bar.stop()
