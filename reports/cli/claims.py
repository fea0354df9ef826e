"""`rehearse claims`: a paper's claims with our measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reports.cli.output import AS_CSV, AS_JSON, Form, emit, form_of, wide
from reports.cli.settings import flag, option
from workloads.errors import UserError

if TYPE_CHECKING:
    from reports.cards.group import Group
    from reports.claims.grading import Graded

STYLES = {
    "matches": "green", "holds": "green", "misses": "red", "does not hold": "red", "not measured": "dim",
}  # fmt: skip
_WIDE = 150


def claims(
    group: Annotated[str, typer.Argument(help="A group of figure cards, see `rehearse list cards`.")],
    as_json: bool = AS_JSON,
    as_csv: bool = AS_CSV,
    results: Path | None = option(None, "Results directory; default: results/GROUP.", "DIR"),
    sensitivity: bool = flag("--sensitivity", "Which claims keep their sign under changed constants."),
) -> None:
    """Show each claim of a group's cards: the paper's value, ours with its interval, outcome, provenance and cause.

    --json has the value of every seed.

    `rehearse claims liveserve`

    `rehearse claims liveserve --json > claims.json`

    `rehearse claims liveserve --sensitivity`
    """
    form = form_of(as_json, as_csv)
    loaded = finished_group(group, results)
    if form != "table":
        from reports.claims.grading import as_rows

        emit(form, sensitivity_data(loaded) if sensitivity else as_rows(loaded.claims))
    elif sensitivity:
        show_sensitivity(loaded)
    else:
        show(loaded.claims, loaded.caveat)
        if loaded.not_asked:
            typer.echo(f"{len(loaded.not_asked)} cards were not run: `rehearse run {group}`.")


def finished_group(group: str, results: Path | None) -> Group:
    """Return the finished run of a group. UserError for an unknown group, and for a directory that does not exist or
    holds another group."""
    from reports.cards.card import check_group

    check_group(group)  # before the reader of results is loaded
    from reports.cards.group import load_group

    folder = results or Path("results") / group
    if not folder.exists():
        raise UserError(f"{folder} does not exist yet; {_how_to_measure(group)}, or give --results DIR.")
    loaded = load_group(folder)
    if loaded.name != group:
        raise UserError(f"{folder} holds the cards of {loaded.name!r}, not of {group!r}; give another --results.")
    return loaded


def _how_to_measure(group: str) -> str:
    """The commands that measure a group. Their points are not counted: that takes seconds, and --dry-run says it."""
    from reports.cards.card import group as cards_of_group
    from reports.cli.card_points import default_out

    cards_of_group(group)  # UserError for a faulty card
    there = f" (there: --results {quick})" if (quick := default_out(group, True)).exists() else ""
    return f"`rehearse run {group} --quick` measures one seed of smaller cards{there}, `rehearse run {group}` all of it"


def show(claims: Sequence[Graded], caveat: str = "") -> None:
    """Print the claims by fact, and the number of facts by provenance and outcome."""
    from rich.table import Table
    from rich.text import Text

    from reports.cards.card import figures
    from reports.claims.grading import counted, facts

    console = wide(_WIDE)
    table = Table(box=None, pad_edge=False, title="Claims", title_justify="left", padding=(0, 2, 0, 0))
    by_name = figures()
    card = next((by_name[each.card] for each in claims if each.card in by_name), None)
    against, reference = (card.against, card.reference) if card else ("the paper", "")
    numbers = (against.removeprefix("the "), "ours (95 % interval)")
    for heading in ("card", "claim", *numbers, "outcome", "provenance", "cause"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "outcome")
    for fact in facts(claims):
        if together := len(fact.claims) > 1:
            style = STYLES.get(fact.outcome, "")
            table.add_row("", Text(fact.text, "bold"), "", "", Text(fact.outcome, style), fact.provenance, "")
        for each in fact.claims:
            ours = f"{each.ours} ({each.interval})" if each.interval else each.ours
            text = each.claim.text + (f" [{each.claim.remark}]" if each.claim.remark else "")
            cells = [each.card, "  " * together + text, each.claim.published, ours]
            outcome = Text(each.outcome, STYLES.get(each.outcome, ""))
            table.add_row(*map(Text, cells), outcome, each.provenance, Text(each.cause))
    console.print(table)
    for line in filter(None, (f"Facts: {counted(claims)}.", caveat, reference and f"Paper: {reference}.")):
        console.print(line, highlight=False)


def sensitivity_data(group: Group) -> list[dict[str, Any]]:
    """The matrix as plain data."""
    rows = []
    for card, assessed, cells in group.sensitivity:
        claim, ours = assessed.claim, assessed.spread.median
        variations = {
            name: {"sign": cell.sign, "ours": cell.spread.median, "interval": cell.spread.interval}
            for name, cell in cells.items()
        }
        row = {"id": claim.id, "card": card, "claim": claim.text, "ours": ours, "variations": variations}
        rows.append(row)
    return rows


def show_sensitivity(group: Group) -> None:
    """Print a list of the claims, and for each the variations under which its sign is not kept."""
    from rich.table import Table
    from rich.text import Text

    from reports.claims.sensitivity import KEPT

    rows = group.sensitivity
    if not rows:
        raise UserError(f"{group.folder} holds no card that varies constants; run `rehearse run {group.name}` first.")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("card", "claim", "ours", "sign kept", "not kept"):
        table.add_column(heading, overflow="fold")
    for card, assessed, cells in rows:
        other = [
            f"{name}: {cell.sign}"
            + ("" if cell.spread.median is None else f" ({assessed.claim.write(cell.spread.median)})")
            for name, cell in cells.items()
            if cell.sign != KEPT
        ]
        kept = f"{len(cells) - len(other)} of {len(cells)}"
        table.add_row(*map(Text, (card, assessed.claim.text, assessed.ours, kept, "; ".join(other))))
    wide(_WIDE).print(table)


def present_group(folder: Path, cards: Sequence[str] | None = None, form: Form = "table") -> None:
    """Print the claims of these cards (default: all) and the path of the report, which is written for all cards."""
    from reports.cards.group import load_group
    from reports.pages.group_page import write_group_report

    group = load_group(folder)
    claims = [claim for claim in group.claims if cards is None or claim.card in cards]
    if form == "table":
        show(claims, group.caveat)
    else:
        from reports.claims.grading import as_rows

        emit(form, as_rows(claims))
    for path in (folder / "summary.json", write_group_report(group)):
        typer.echo(str(path), err=form != "table")
