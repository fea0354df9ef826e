"""The tables of claims in the papers' pages, from what a full run measured.

    rehearse claims NAME --json > docs/papers/NAME.json
    python -m docs.claims

A page says which claims it shows between `<!-- claims ID ... -->` and `<!-- end -->`, which of them are the abstract's
between `<!-- headline ID ... -->` and `<!-- end -->`, and how many have which verdict between `<!-- verdicts -->` and
`<!-- end -->`; what stands there is written anew, with verdicts by the cards and rules as they are. The headline's
table says why each number differs, too. The file beside it keeps what was measured alone, a claim on each line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reports.cards.card import group
from reports.claims.claim import Assessed, as_rows, judge, tally

PAGES = Path(__file__).parent / "papers"
_BLOCK = re.compile(r"(<!-- (claims|headline)\s+([^>]*?)\s*-->\n).*?(<!-- end -->)", re.DOTALL)
_VERDICTS = re.compile(r"(<!-- verdicts -->\n).*?(<!-- end -->)", re.DOTALL)


def shown(page: Path) -> list[str]:
    """The ids of the claims that a page shows, the headline's aside."""
    blocks = _BLOCK.finditer(page.read_text())
    return [id for block in blocks if block[2] == "claims" for id in block[3].split()]


def filled(page: Path) -> str:
    """A page with its tables and its count of verdicts as the claims beside it have them. KeyError for a claim that was
    not measured."""
    claims = {each["id"]: each for each in as_rows(judged(page.with_suffix(".json")))}

    def table(block: re.Match[str]) -> str:
        head, cells = TABLES[block[2]]
        rows = [cells(claims[id]) for id in block[3].split()]
        lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
        table = [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {line} |" for line in lines)]
        return block[1] + "\n".join(table) + "\n" + block[4]

    counted = tally((each["own"], each["verdict"]) for each in claims.values())
    return _VERDICTS.sub(rf"\g<1>**{counted}.**\n\g<2>", _BLOCK.sub(table, page.read_text()))


def _claim(row: dict[str, Any]) -> list[str]:
    ours = row["ours_text"] + (f" ({row['interval_text']})" if row["interval_text"] else "")
    return [row["card"].partition("-")[2], row["claim"], row["paper_text"], ours, _verdict(row)]


def _headline(row: dict[str, Any]) -> list[str]:
    why = row["explanation"] or row["remark"] or "–"
    return [row["claim"], row["paper_text"], row["ours_text"], row["interval_text"], _verdict(row), why]


TABLES = {
    "claims": (["card", "claim", "paper", "ours", "verdict"], _claim),
    "headline": (["headline", "paper", "ours", "95 % interval", "verdict", "cause"], _headline),
}


def _verdict(row: dict[str, Any]) -> str:
    return str(row["verdict"]).replace("not r", "**not** r")


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
