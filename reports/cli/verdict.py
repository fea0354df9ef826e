"""The verdict on a live run in the terminal: the sentence first, then its basis."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.slo.search import SHOWN, Search
from harness.slo.targets import FAIL, INCONCLUSIVE, PASS, number
from reports.live.live_verdict import LiveVerdict, rows
from reports.tables.columns import MISSING

_STYLES = {PASS: "green", FAIL: "red", INCONCLUSIVE: "yellow"}


def show_verdict(console: Console, verdict: LiveVerdict) -> None:
    """Sentence, table and notes."""
    console.print(Text(verdict.sentence, f"bold {_STYLES[verdict.verdict]}"), soft_wrap=True)
    console.print(Text(f"Measured {verdict.measured}.", "dim"), soft_wrap=True)
    if verdict.search is not None:
        console.print(_search_table(verdict.search))
    console.print(_table(verdict))
    for note in verdict.notes:
        console.print(Text(note, "dim"), soft_wrap=True)


def _table(verdict: LiveVerdict) -> Table:
    """A row for each load and target."""
    found = rows(verdict)
    priced = any(row["price"] for row in found)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    price = ["price a\ncall-minute"] if priced else []
    for heading in ("load", "users", *price, "target", "measured", "95 % interval", "n", ""):
        table.add_column(heading, justify="left" if heading in ("load", "target", "") else "right")
    for row in found:
        first = [row["load"], row["on_line"], *([row["price"]] if priced else [])]
        told = Text(row["verdict"], _STYLES.get(row["verdict"], "yellow"))
        table.add_row(*first, row["target"], row["value"], row["interval"], row["n"], told)
    return table


def _search_table(search: Search) -> Table:
    """Each number that was tried, with every repeat, and whether it passed."""
    question, table = search.question, Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(f"{question.counts}s", justify="right")
    for target in question.targets:
        table.add_column(str(target), justify="right")
    table.add_column("")
    for step in search.steps:
        told = [
            ", ".join(MISSING if v is None else number(t.metric, v, unit=False) for v in values)
            for t, values in zip(
                question.targets, zip(*(r.values for r in step.repeats), strict=True), strict=True
            )
        ]
        verdict = SHOWN[step.verdict]
        table.add_row(f"{step.value:g}", *told, Text(verdict, _STYLES.get(verdict, "yellow")))
    return table
