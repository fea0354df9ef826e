"""Rules that every paper keeps, for the tests of its package: `check_cards("vtc")` and `check_page("vtc")`.

Each raises AssertionError with a sentence about the first card, claim or page that breaks a rule, or UserError if the
card cannot be run.
"""

from __future__ import annotations

from harness.by_device import parameters
from harness.experiments.experiment import CHOICES
from reports.cards.card import group
from reports.cards.papers import papers
from reports.cards.unmeasured import check_claims
from reports.claims.grading import GOOD, NOT_MEASURED
from reports.cli.card_points import asked
from reports.pages.paper_page import filled, graded, kept, shown


def check_cards(name: str) -> None:
    """Check that the cards of a paper can be run, whole and by --quick, and have claims with ids of their own."""
    cards = group(name)
    ids = [claim.id for card in cards for claim in card.claims]
    assert len(ids) == len(set(ids)), f"{name}: two claims have one id"
    for card in cards:
        assert card.title and card.experiments, f"{card.name}: give it a title and experiments"
        assert bool(card.needs) == bool(card.give), f"{card.name}: NEEDS and GIVE go together"
        check_claims(card)
        known = {each for one in card.experiments.values() for each in (*parameters(one), *CHOICES)}
        assert known.issuperset({*card.quick, *card.give}), f"{card.name}: QUICK or GIVE has an unknown parameter"
        if card.needs:
            continue
        small = asked([card], {}, None, None, quick=True)
        for panel, quick in small[card.name].items():
            more = quick.grid.keys() - card.experiments[panel].grid.keys()
            assert not more, f"{card.name}, {panel}: several values of {more} give a claim several values for one seed"


def check_page(name: str) -> None:
    """Check that a paper's page has every claim once, as it was measured, each with its reasons."""
    page = papers()[name].page
    assert page.exists(), f"{name} has no page; run `rehearse run {name}` and `rehearse page {name}`"
    claims = graded(name)
    assert page.with_suffix(".json").read_text() == kept(claims), f"{name}: run `rehearse page {name}`"
    assert page.read_text() == filled(name), f"{name}: run `rehearse page {name}`"
    cards = [card.name.partition("-")[2] for card in group(name) if card.claims]
    assert sorted(shown(page)) == sorted(cards), f"{name}: its page needs the claims of each card once"
    for each in claims:
        about, claim = f"{name}, claim {each.claim.id}", each.claim
        assert claim.own or claim.sentence or claim.because, f"{about}: give `within` the reason for its width"
        measured = each.by_value != NOT_MEASURED
        assert each.outcome in GOOD or each.cause or not measured, f"{about}: say why it differs"
        found = each.evident or (each.evidence and all(each.evidence.values()))
        assert claim.untold is None or not measured or found, f"{about}: its evidence was not measured"
