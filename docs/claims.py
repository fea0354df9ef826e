"""The tables of claims in the papers' pages, from what a full run measured.

    rehearse claims NAME --json > docs/papers/NAME.json
    python -m docs.claims

A page says which claims it shows between `<!-- claims ID ... -->` and `<!-- end -->`, and how many have which verdict
between `<!-- verdicts -->` and `<!-- end -->`; what stands there is written anew, with verdicts by the cards and rules
as they are. The file beside it keeps what was measured alone, a claim on each line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from reports.cards.card import group
from reports.claims.claim import Assessed, as_rows, judge, tally

PAGES = Path(__file__).parent / "papers"
_BLOCK = re.compile(r"(<!-- claims\s+([^>]*?)\s*-->\n).*?(<!-- end -->)", re.DOTALL)
_VERDICTS = re.compile(r"(<!-- verdicts -->\n).*?(<!-- end -->)", re.DOTALL)


def shown(page: Path) -> list[str]:
    """The ids of the claims that a page shows."""
    return [id for block in _BLOCK.finditer(page.read_text()) for id in block[2].split()]


def filled(page: Path) -> str:
    """A page with its tables and its count of verdicts as the claims beside it have them. KeyError for a claim that was
    not measured."""
    claims = {each["id"]: each for each in as_rows(judged(page.with_suffix(".json")))}

    def table(block: re.Match[str]) -> str:
        rows = ["| card | claim | paper | here | verdict |", "|---|---|---|---|---|"]
        for each in map(claims.__getitem__, block[2].split()):
            card = each["card"].partition("-")[2]
            ours = each["ours_text"] + (f" ({each['interval_text']})" if each["interval_text"] else "")
            cells = (
                card,
                each["claim"],
                each["paper_text"],
                ours,
                each["verdict"].replace("not r", "**not** r"),
            )
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        return block[1] + "\n".join(rows) + "\n" + block[3]

    counted = tally((each["own"], each["verdict"]) for each in claims.values())
    return _VERDICTS.sub(rf"\g<1>**{counted}.**\n\g<2>", _BLOCK.sub(table, page.read_text()))


def judged(measured: Path) -> list[Assessed]:
    """The claims of a file with its values as they were measured, judged by the cards as they are now. KeyError for a
    claim that was not measured."""
    known = {each["id"]: each for each in json.loads(measured.read_text())}
    claims = []
    for card in group(measured.stem):
        for claim in card.claims:
            found = known[claim.id]
            by_seed = {int(seed): value for seed, value in found.get("by_seed", {}).items()}
            claims.append(
                judge(claim, found["card"], by_seed or found.get("by_run", {}), found.get("needs") or "")
            )
    return claims


def kept(claims: Sequence[Assessed]) -> str:
    """What was measured of claims, as their file has it: nothing that the cards say themselves."""
    told = [
        {key: row[key] for key in ("id", "card", "by_seed", "by_run", "needs") if row.get(key)}
        for row in as_rows(claims)
    ]
    return "[\n" + ",\n".join(map(json.dumps, told)) + "\n]\n"


if __name__ == "__main__":
    for found in sorted(PAGES.glob("*.json")):
        page = found.with_suffix(".md")
        found.write_text(kept(judged(found)))
        page.write_text(filled(page))
