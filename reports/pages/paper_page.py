"""The page of a paper: prose around tables of its claims, which are made from the values of a full run.

A page has a table of each claim of some cards between `<!-- claims CARD ... -->` and `<!-- end -->`, of single claims
between `<!-- headline ID ... -->` and `<!-- end -->`, the number of facts by outcome between `<!-- outcomes -->` and
`<!-- end -->`, and the paper's mechanisms between `<!-- mechanisms -->` and `<!-- end -->`. The text between such marks
is written anew, with outcomes by the cards and rules as they are. The JSON file next to a page has the measured values
alone, a claim on each line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from reports.cards.card import group
from reports.cards.papers import papers
from reports.claims.grading import BAD, Fact, Graded, as_rows, counted, facts
from reports.claims.mechanism import Mechanism
from workloads.errors import UserError, unknown

_BLOCK = re.compile(r"(<!-- (claims|headline)\s+([^>]*?)\s*-->\n).*?(<!-- end -->)", re.DOTALL)
_OUTCOMES = re.compile(r"(<!-- outcomes -->\n).*?(<!-- end -->)", re.DOTALL)
_MECHANISMS = re.compile(r"(<!-- mechanisms -->\n).*?(<!-- end -->)", re.DOTALL)
_COLUMNS = ["claim", "paper", "ours", "outcome", "provenance", "cause"]
_NEW = """# {name}

{reference}

<!-- outcomes -->
<!-- end -->

## Run it

```console
$ rehearse run {name}
$ rehearse page {name}
```

## Claims

<!-- claims {cards} -->
<!-- end -->
"""
"""A page to begin with."""


def write_page(name: str, claims: Sequence[Graded]) -> Path:
    """Write a paper's page, a new one where there is none, and the measured values of its claims next to it. Return the
    page's path. OSError; UserError for a page that names a card or a claim that the paper does not have."""
    page = papers()[name].page
    page.with_suffix(".json").write_text(kept(claims))
    if not page.exists():
        cards = " ".join(_short(card.name) for card in group(name) if card.claims)
        reference = papers()[name].about.reference or f"Compared with {papers()[name].about.against}."
        page.write_text(_NEW.format(name=name, reference=reference, cards=cards))
    page.write_text(filled(name))
    return page


def shown(page: Path) -> list[str]:
    """The cards with a table of claims on a page."""
    blocks = _BLOCK.finditer(page.read_text())
    return [card for block in blocks if block[2] == "claims" for card in block[3].split()]


def filled(name: str) -> str:
    """A paper's page with its tables and its number of facts as the values next to it say. UserError for a card or a
    claim that the paper does not have."""
    claims, page = graded(name), papers()[name].page
    by_id = {each.claim.id: each for each in claims}
    by_card = {_short(each.name): each.name for each in group(name)}

    def table(block: re.Match[str]) -> str:
        names, known = block[3].split(), by_id if block[2] == "headline" else by_card
        for each in names:
            if each not in known:
                raise unknown("claim" if known is by_id else "card", each, known, f" in {page}")
        if known is by_id:
            return block[1] + markdown(_COLUMNS, [_cells(by_id[id]) for id in names]) + block[4]
        cards = [by_card[each] for each in names]
        rows = [row for fact in facts(each for each in claims if each.card in cards) for row in _rows(fact)]
        return block[1] + markdown(["card", *_COLUMNS], rows) + block[4]

    text = _BLOCK.sub(table, page.read_text())
    text = _OUTCOMES.sub(rf"\g<1>**Facts: {counted(claims)}.**\n\g<2>", text)
    rows = [_mechanism(each) for each in mechanisms(name)]
    head = ["mechanism", "in the paper", "switch", "the test that shows its effect"]
    return _MECHANISMS.sub(lambda block: block[1] + markdown(head, rows) + block[2], text)


def mechanisms(name: str) -> Sequence[Mechanism]:
    """The mechanisms that a paper names, in the module `mechanisms` of its package."""
    paper = papers()[name]
    if paper.folder is None or not (paper.folder / "mechanisms.py").is_file():
        return ()
    return import_module(f"{paper.package}.mechanisms").MECHANISMS


def _mechanism(each: Mechanism) -> list[str]:
    if each.missing:
        return [each.name, each.place, "**missing**", each.missing]
    return [each.name, each.place, f"`{each.switch}`", f"`{each.test.removeprefix('tests/')}`"]


def _rows(fact: Fact) -> list[list[str]]:
    rows = [[_short(each.card), *_cells(each)] for each in fact.claims]
    if len(rows) == 1:
        return rows
    return [["", f"**{fact.text}**", "", "", _outcome(fact.outcome), fact.provenance, ""], *rows]


def _cells(each: Graded) -> list[str]:
    ours = each.ours + (f" ({each.interval})" if each.interval else "")
    text = each.claim.text + (f" ({each.claim.remark})" if each.claim.remark else "")
    return [text, each.claim.published, ours, _outcome(each.outcome), each.provenance, each.cause or "–"]


def _outcome(word: str) -> str:
    return f"**{word}**" if word in BAD else word


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    table = [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {line} |" for line in lines)]
    return "\n".join(table) + "\n"


def graded(name: str) -> list[Graded]:
    """A paper's claims with the values next to its page as they were measured, graded by the cards as they are now.
    UserError for a claim that was not measured."""
    measured = papers()[name].page.with_suffix(".json")
    known = {each["id"]: each for each in json.loads(measured.read_text())}
    claims = []
    for card in group(name):
        for claim in card.claims:
            if claim.id not in known:
                raise UserError(
                    f"{measured} has no values of claim {claim.id}; run `rehearse run {name}` and `rehearse "
                    f"page {name}`."
                )
            row = known[claim.id]
            evidence = {setting: _by_seed(values) for setting, values in (row.get("evidence") or {}).items()}
            values = _by_seed(row.get("by_seed", {})) or row.get("by_run", {})
            claims.append(Graded(claim, card.name, values, evidence, row.get("needs") or ""))
    return claims


def _by_seed(values: dict[str, float | None]) -> dict[int, float | None]:
    return {int(seed): value for seed, value in values.items()}


def kept(claims: Sequence[Graded]) -> str:
    """The measured values of claims, as their file has them: nothing that the cards say themselves."""
    keys = ("id", "card", "by_seed", "by_run", "evidence", "needs")
    rows = [{key: row[key] for key in keys if row.get(key)} for row in as_rows(claims)]
    return "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n"


def _short(card: str) -> str:
    """A card's name without its group."""
    return card.partition("-")[2]
