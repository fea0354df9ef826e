"""The papers' pages say what their committed claims say, and these are the cards' own."""

import tomllib
from collections import Counter
from pathlib import Path

import pytest
import yaml

from docs.cards import labelled
from docs.claims import PAGES, filled, judged, kept, shown
from reports.cards.card import figures, group
from reports.claims.claim import CALIBRATED, DIRECTION, NOT_REPRODUCED, REPRODUCED

MEASURED = sorted(PAGES.glob("*.json"))
MARKED = [page for page in sorted(PAGES.glob("*.md")) if shown(page)]


@pytest.mark.parametrize("claims", MEASURED, ids=[path.stem for path in MEASURED])
def test_a_page_shows_what_was_measured(claims: Path) -> None:
    page = claims.with_suffix(".md")
    assert shown(page), "it shows none of its claims"
    assert page.read_text() == filled(page), "run `python -m docs.claims`"


@pytest.mark.parametrize("claims", MEASURED, ids=[path.stem for path in MEASURED])
def test_what_was_measured_are_the_claims_of_the_cards(claims: Path) -> None:
    """Every claim of theirs, and no other."""
    assert claims.read_text() == kept(judged(claims)), "run `python -m docs.claims`, or a new claim's card"


@pytest.mark.parametrize("page", MARKED, ids=[path.stem for path in MARKED])
def test_a_page_shows_claims_that_its_cards_have_each_once(page: Path) -> None:
    declared = {claim.id for card in group(page.stem) for claim in card.claims}
    assert set(shown(page)) <= declared and len(shown(page)) == len(set(shown(page)))


@pytest.mark.parametrize("page", MARKED, ids=[path.stem for path in MARKED])
def test_a_page_opens_with_what_came_out_and_not_with_commands(page: Path) -> None:
    text = page.read_text()
    before, run, _ = text.partition("\n## Run it\n")
    assert run and "```console" not in before
    first = text.index("\n## ")
    assert text.index("<!-- verdicts -->") < first and "reproduced" in text[:first]


def test_the_readme_counts_verdicts_as_the_pages_do() -> None:
    readme = (PAGES.parents[1] / "README.md").read_text()
    sums: Counter[str] = Counter()
    for claims in MEASURED:
        verdicts = Counter(each.verdict for each in judged(claims) if not each.claim.own)
        cells = [
            verdicts.total(),
            *(verdicts[each] for each in (REPRODUCED, DIRECTION, NOT_REPRODUCED, CALIBRATED)),
        ]
        assert f"(docs/papers/{claims.stem}.md) | " + " | ".join(map(str, cells)) + " |" in readme
        sums.update(verdicts)
    good, partly, bad = (sums[each] for each in (REPRODUCED, DIRECTION, NOT_REPRODUCED))
    said = (
        f"Of {good + partly + bad} published results, {good} reproduce, {partly} reproduce in direction only"
    )
    assert f"{said}, and {bad} do not." in " ".join(readme.split())


def test_the_repository_says_how_to_cite_it_and_the_papers() -> None:
    root = PAGES.parents[1]
    text = (root / "CITATION.cff").read_text()
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert yaml.safe_load(text)["version"] == project["version"]
    referred = {card.group: card.reference for card in figures().values() if card.reference}
    numbers = {
        name: reference.rpartition("arXiv ")[2]
        for name, reference in referred.items()
        if "arXiv" in reference
    }
    assert len(referred) == 5 and len(numbers) == 4
    for name, number in numbers.items():
        assert f"arxiv.org/abs/{number}" in text and f"arXiv {number}" in (PAGES / f"{name}.md").read_text()


def test_cells_of_a_table_are_named_by_their_columns() -> None:
    head = "<thead>\n<tr>\n<th>card</th>\n<th style='x'>the <em>claim</em></th>\n<th></th>\n</tr>\n</thead>\n"
    row = '<tr>\n<td>fig4</td>\n<td style="text-align: right;">a</td>\n<td>b</td>\n</tr>\n'
    page = f"<p>x</p><table>\n{head}<tbody>\n{row}{row}</tbody>\n</table><td>y</td>"
    found = labelled(page)
    assert found.count('<td data-label="card">fig4</td>') == 2
    assert found.count('<td style="text-align: right;" data-label="the claim">a</td>') == 2
    assert "<td>b</td>" in found and found.endswith("<td>y</td>")
