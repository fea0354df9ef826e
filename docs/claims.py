"""The tables of claims in the papers' pages, from the values of a full run.

    rehearse claims NAME --json > docs/papers/NAME.json
    python -m docs.claims

A page has a table of each claim of some cards between `<!-- claims CARD ... -->` and `<!-- end -->`, of the abstract's
between `<!-- headline ID ... -->` and `<!-- end -->`, and the number of facts by outcome between `<!-- outcomes -->`
and `<!-- end -->`. README has one row for each paper between `<!-- papers -->` and `<!-- end -->`. The text between
such marks is written anew, with outcomes by the cards and rules as they are. The JSON file next to a page has the
measured values alone, a claim on each line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from reports.cards.card import group
from reports.claims.grading import (
    BAD,
    CHOSEN,
    DIRECTION,
    DOES_NOT,
    FITTED,
    GOOD,
    HOLDS,
    MATCHES,
    MISSES,
    OF_OUR_OWN,
    PREDICTED,
    UNTOLD,
    Fact,
    Graded,
    as_rows,
    counted,
    facts,
)  # fmt: skip
from reports.claims.mechanism import Mechanism

PAGES = Path(__file__).parent / "papers"
README = PAGES.parents[1] / "README.md"
_BLOCK = re.compile(r"(<!-- (claims|headline)\s+([^>]*?)\s*-->\n).*?(<!-- end -->)", re.DOTALL)
_OUTCOMES = re.compile(r"(<!-- outcomes -->\n).*?(<!-- end -->)", re.DOTALL)
_MECHANISMS = re.compile(r"(<!-- mechanisms -->\n).*?(<!-- end -->)", re.DOTALL)
_PAPERS = re.compile(r"(<!-- papers -->\n).*?(<!-- end -->)", re.DOTALL)
_COLUMNS = ["claim", "paper", "ours", "outcome", "provenance", "cause"]


def shown(page: Path) -> list[str]:
    """The cards with a table of claims on a page."""
    blocks = _BLOCK.finditer(page.read_text())
    return [card for block in blocks if block[2] == "claims" for card in block[3].split()]


def filled(page: Path) -> str:
    """A page with its tables and its number of facts as the values next to it say. KeyError for a claim without."""
    claims = graded(page.with_suffix(".json"))
    by_id = {each.claim.id: each for each in claims}

    def table(block: re.Match[str]) -> str:
        names = block[3].split()
        if block[2] == "headline":
            return block[1] + _table(_COLUMNS, [_cells(by_id[id]) for id in names]) + block[4]
        cards = [f"{page.stem}-{name}" for name in names]
        rows = [row for fact in facts(each for each in claims if each.card in cards) for row in _rows(fact)]
        return block[1] + _table(["card", *_COLUMNS], rows) + block[4]

    text = _BLOCK.sub(table, page.read_text())
    text = _OUTCOMES.sub(rf"\g<1>**Facts: {counted(claims)}.**\n\g<2>", text)
    rows = [_mechanism(each) for each in mechanisms(page.stem)]
    head = ["mechanism", "in the paper", "switch", "the test that shows its effect"]
    return _MECHANISMS.sub(lambda block: block[1] + _table(head, rows) + block[2], text)


def mechanisms(group: str) -> Sequence[Mechanism]:
    """The mechanisms that a paper names."""
    return import_module(f"reports.papers.{group}.mechanisms").MECHANISMS


def _mechanism(each: Mechanism) -> list[str]:
    if each.missing:
        return [each.name, each.place, "**missing**", each.missing]
    return [each.name, each.place, f"`{each.switch}`", f"`{each.test.removeprefix('tests/')}`"]


def readme() -> str:
    """README with the row of each paper."""
    head = [
        "",
        "mechanisms built",
        "sentences that hold",
        "numbers: match",
        "direction",
        "miss",
        "fitted: match",
        "miss",
    ]
    rows = [_paper(page) for page in sorted(PAGES.glob("*.json"))]
    return _PAPERS.sub(rf"\g<1>{_table([*head, 'cannot be told', 'other'], rows)}\g<2>", README.read_text())


def _paper(values: Path) -> list[str]:
    """The facts of a paper: predicted and chosen ones (in brackets the chosen ones alone), fitted ones, those that
    cannot be judged, and all others."""
    found = [fact for fact in facts(graded(values)) if fact.provenance != OF_OUR_OWN]
    free = [fact for fact in found if fact.provenance in (PREDICTED, CHOSEN)]
    fitted = [fact.outcome for fact in found if fact.provenance == FITTED]

    def cell(*outcomes: str) -> str:
        chosen = [fact.provenance == CHOSEN for fact in free if fact.outcome in outcomes]
        return f"{len(chosen)} ({sum(chosen)})" if any(chosen) else str(len(chosen))

    built, cells = mechanisms(values.stem), [cell(each) for each in (MATCHES, DIRECTION, MISSES)]
    decided = sum(fact.outcome in (HOLDS, DOES_NOT) for fact in free)
    numbers = sum(fact.outcome in (MATCHES, DIRECTION, MISSES) for fact in free)
    good, bad = (sum(each in words for each in fitted) for words in (GOOD, BAD))
    untold = sum(fact.outcome == UNTOLD for fact in found)
    title = values.with_suffix(".md").read_text().partition("\n")[0].removeprefix("# ")
    return [
        f"[{title}](docs/papers/{values.stem}.md)",
        f"{sum(not each.missing for each in built)} of {len(built)}",
        f"{cell(HOLDS)} of {decided}",
        *cells,
        *map(str, (good, bad, untold, len(found) - decided - numbers - good - bad - untold)),
    ]


def _rows(fact: Fact) -> list[list[str]]:
    rows = [[each.card.partition("-")[2], *_cells(each)] for each in fact.claims]
    if len(rows) == 1:
        return rows
    return [["", f"**{fact.text}**", "", "", _outcome(fact.outcome), fact.provenance, ""], *rows]


def _cells(each: Graded) -> list[str]:
    ours = each.ours + (f" ({each.interval})" if each.interval else "")
    text = each.claim.text + (f" ({each.claim.remark})" if each.claim.remark else "")
    return [text, each.claim.published, ours, _outcome(each.outcome), each.provenance, each.cause or "–"]


def _outcome(word: str) -> str:
    return f"**{word}**" if word in BAD else word


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    table = [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {line} |" for line in lines)]
    return "\n".join(table) + "\n"


def graded(measured: Path) -> list[Graded]:
    """The claims of a file with its values as they were measured, graded by the cards as they are now. KeyError for a
    claim that was not measured."""
    known = {each["id"]: each for each in json.loads(measured.read_text())}
    claims = []
    for card in group(measured.stem):
        for claim in card.claims:
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


if __name__ == "__main__":
    for found in sorted(PAGES.glob("*.json")):
        page = found.with_suffix(".md")
        found.write_text(kept(graded(found)))
        page.write_text(filled(page))
    README.write_text(readme())
