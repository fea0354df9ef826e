"""The papers' pages and README's table of papers, from the values next to the pages.

    rehearse page NAME        # the values and the page of a paper, after `rehearse run NAME`
    python -m docs.claims     # all pages again, after a change of claims or rules

README has one row for each paper between `<!-- papers -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
from pathlib import Path

from reports.cards.papers import papers
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
    facts,
)  # fmt: skip
from reports.pages.paper_page import graded, markdown, mechanisms, write_page

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
_PAPERS = re.compile(r"(<!-- papers -->\n).*?(<!-- end -->)", re.DOTALL)


def measured() -> list[str]:
    """The papers with a page here."""
    pages = {name: paper.page for name, paper in papers().items() if paper.page.is_relative_to(ROOT / "docs")}
    return [name for name, page in pages.items() if page.with_suffix(".json").exists()]


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
    rows = [_paper(name) for name in measured()]
    return _PAPERS.sub(rf"\g<1>{markdown([*head, 'cannot be told', 'other'], rows)}\g<2>", README.read_text())


def _paper(name: str) -> list[str]:
    """The facts of a paper: predicted and chosen ones (in brackets the chosen ones alone), fitted ones, those that
    cannot be judged, and all others."""
    found = [fact for fact in facts(graded(name)) if fact.provenance != OF_OUR_OWN]
    free = [fact for fact in found if fact.provenance in (PREDICTED, CHOSEN)]
    fitted = [fact.outcome for fact in found if fact.provenance == FITTED]

    def cell(*outcomes: str) -> str:
        chosen = [fact.provenance == CHOSEN for fact in free if fact.outcome in outcomes]
        return f"{len(chosen)} ({sum(chosen)})" if any(chosen) else str(len(chosen))

    built, cells = mechanisms(name), [cell(each) for each in (MATCHES, DIRECTION, MISSES)]
    decided = sum(fact.outcome in (HOLDS, DOES_NOT) for fact in free)
    numbers = sum(fact.outcome in (MATCHES, DIRECTION, MISSES) for fact in free)
    good, bad = (sum(each in words for each in fitted) for words in (GOOD, BAD))
    untold = sum(fact.outcome == UNTOLD for fact in found)
    page = papers()[name].page
    title = page.read_text().partition("\n")[0].removeprefix("# ")
    return [
        f"[{title}](docs/papers/{page.name})",
        f"{sum(not each.missing for each in built)} of {len(built)}",
        f"{cell(HOLDS)} of {decided}",
        *cells,
        *map(str, (good, bad, untold, len(found) - decided - numbers - good - bad - untold)),
    ]


if __name__ == "__main__":
    for name in measured():
        write_page(name, graded(name))
    README.write_text(readme())
