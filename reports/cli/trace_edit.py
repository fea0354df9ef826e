"""`rehearse trace edit`: traces merged, cut, thinned, stretched or looped into a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reports.cli.settings import at_least
from reports.cli.trace_table import describe_trace
from workloads.errors import UserError


def edit(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Trace files; several are merged.")],
    out: Annotated[Path, typer.Option("--out", help="File to write.")],
    cut: Annotated[
        str | None, typer.Option("--cut", metavar="START:END", help="Keep sessions that begin between, in s.")
    ] = None,
    thin: Annotated[
        float | None, typer.Option("--thin", metavar="SHARE", help="Keep each session with this probability.")
    ] = None,
    scale: Annotated[
        float | None,
        typer.Option("--scale", metavar="FACTOR", help="Multiply arrival times; 0.5 doubles the rate."),
    ] = None,
    loop: Annotated[
        int, typer.Option("--loop", metavar="N", parser=at_least(1), help="Play the trace N times in a row.")
    ] = 1,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", parser=at_least(0), help="For --thin: which sessions stay.")
    ] = 0,
) -> None:
    """Make a trace of others: merged, then cut, thinned, scaled in time and looped, each step noted in its header.

    `rehearse trace edit voice.parquet burst.parquet --cut 0:600 --scale 0.5 --out both.parquet`
    """
    from workloads import transform
    from workloads.formats import load_trace, save_trace

    traces = [load_trace(file) for file in files]
    trace = traces[0] if len(traces) == 1 else transform.merge(traces)
    if cut is not None:
        trace = transform.cut(trace, *_span(cut))
    if thin is not None:
        trace = transform.thin(trace, thin, seed)
    if scale is not None:
        trace = transform.scale_time(trace, scale)
    if loop > 1:
        trace = transform.loop(trace, loop)
    save_trace(trace, out)
    describe_trace(trace)
    typer.echo(f"\n{out}")


def _span(text: str) -> tuple[float, float]:
    try:
        start, end = map(float, text.split(":"))
    except ValueError:
        raise UserError(
            f"--cut {text} is no span; write --cut START:END in seconds, such as 0:600."
        ) from None
    return start, end
