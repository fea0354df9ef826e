"""`rehearse page`: the page of a paper, with tables of its claims as they were measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reports.cli.claims import finished_group
from reports.cli.settings import option
from workloads.errors import UserError


def page(
    name: Annotated[str, typer.Argument(metavar="PAPER", help="A group of figure cards.")],
    results: Path | None = option(None, "Results directory; default: results/PAPER.", "DIR"),
) -> None:
    """Write the tables of claims in a paper's page, from a whole run of its cards, and print the page's path.

    A page that does not exist begins with the reference, the outcomes and all claims. The measured values go to a JSON
    file next to the page.

    `rehearse run conserve && rehearse page conserve`
    """
    from reports.cards.card import figures
    from reports.pages.paper_page import write_page
    from workloads.atomic_file import cannot_write

    group = finished_group(name, results)
    lacks = ", ".join(card for card in group.not_asked if figures()[card].claims)
    if group.caveat or lacks:
        why = f"lacks {lacks}" if lacks else "was measured with other settings than the cards have"
        raise UserError(f"{group.folder} {why}; `rehearse run {name}` measures what the page is made of.")
    try:
        typer.echo(str(write_page(name, group.claims)))
    except OSError as error:
        raise cannot_write(Path(error.filename or name), error) from None
