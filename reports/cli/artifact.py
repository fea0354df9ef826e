"""`rehearse artifact`: a paper's artifact appendix from a finished run of its cards."""

from pathlib import Path
from typing import Annotated

import typer

from reports.cli.claims import finished_group
from reports.cli.settings import GroupResults, option


def artifact(
    group: Annotated[str, typer.Argument(help="A group of figure cards, see `rehearse list cards`.")],
    results: GroupResults = None,
    out: Annotated[Path | None, option("--out", "Where to write it; default: artifact-GROUP.", "DIR")] = None,
) -> None:
    """Write what evaluators ask for: claims, commands, minutes, the machine, the numbers to expect, CITATION.cff.

    `rehearse run nova && rehearse artifact nova`

    `sh artifact-nova/kick_the_tyres.sh`: a part of it in minutes, held against what is expected
    """
    from reports.claims.artifact import write_artifact

    for path in write_artifact(finished_group(group, results), out or Path(f"artifact-{group}")):
        typer.echo(str(path))
