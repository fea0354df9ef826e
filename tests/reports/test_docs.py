"""The papers' pages say what their committed claims say, and these are the cards' own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs.claims import PAGES, filled, judged, shown
from rehearsal.reports.cards import group

MEASURED = sorted(PAGES.glob("*.json"))
MARKED = [page for page in sorted(PAGES.glob("*.md")) if shown(page)]


@pytest.mark.parametrize("claims", MEASURED, ids=[path.stem for path in MEASURED])
def test_a_page_shows_what_was_measured(claims: Path) -> None:
    page = claims.with_suffix(".md")
    assert shown(page), "it shows none of its claims"
    assert page.read_text() == filled(page), "run `python -m docs.claims`"


@pytest.mark.parametrize("claims", MEASURED, ids=[path.stem for path in MEASURED])
def test_verdicts_are_by_the_cards_and_rules_as_they_are(claims: Path) -> None:
    assert json.loads(claims.read_text()) == json.loads(judged(claims)), "run `python -m docs.claims`"


@pytest.mark.parametrize("claims", MEASURED, ids=[path.stem for path in MEASURED])
def test_what_was_measured_are_the_claims_of_the_cards(claims: Path) -> None:
    measured = {each["id"]: (each["claim"], each["paper_text"]) for each in json.loads(claims.read_text())}
    declared = {
        claim.id: (claim.text, claim.published) for card in group(claims.stem) for claim in card.claims
    }
    assert measured == declared, f"run the cards of {claims.stem} again"


@pytest.mark.parametrize("page", MARKED, ids=[path.stem for path in MARKED])
def test_a_page_shows_claims_that_its_cards_have_each_once(page: Path) -> None:
    declared = {claim.id for card in group(page.stem) for claim in card.claims}
    assert set(shown(page)) <= declared and len(shown(page)) == len(set(shown(page)))
