"""`rehearse gap`: the user's gap as a voice agent accounts for it, beside what callers measured."""

from pathlib import Path
from typing import Annotated

import typer

from reports.cli.output import AsJson, emit


def gap(
    log: Annotated[
        Path,
        typer.Argument(help="Pipecat's latency breakdowns or log, or LiveKit's chat history with metrics."),
    ],
    beside: Annotated[
        Path | None,
        typer.Option("--beside", metavar="DIR", help="Results of `rehearse live` of the same calls."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Divide the gap between a user's last sound and the agent's first into parts that sum, by who owns them.

    `rehearse gap bot.log`: service, setting, bot, pipeline

    `rehearse gap session.json --beside results/live`: and the way to the caller
    """
    from reports.cli.console import wide
    from reports.live.gap import gap_of, gap_table

    found = gap_of(log, beside)
    if as_json:
        emit("json", found.rows(), found.as_dict())
    else:
        wide(110).print(gap_table(found))
