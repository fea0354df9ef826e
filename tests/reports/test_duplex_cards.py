import pytest

from reports.cards import card as cards
from reports.cards.group import Group, load_group
from reports.claims.grading import MATCHES
from reports.figures.picture import Picture
from reports.figures.style import style
from reports.papers.duplex import timeout
from tests.reports import open_calls
from tests.reports.figure_card import serve_cards, smaller


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Group:
    """All cards with few users, three seeds and a script that waits for the time-out and no longer."""
    few = {"sessions": 4, "turns": 3}
    small = [smaller(card, lambda settings: settings | few, seeds=range(3)) for card in cards.group("duplex")]
    return load_group(serve_cards(tmp_path_factory.mktemp("duplex") / "run", small, measure=open_calls.measure))


def test_a_time_out_adds_what_it_lasts_and_detectors_are_compared_at_one_call_and_at_many(measured: Group):
    found = {each.claim.id: each for each in measured.claims}
    for load in timeout.CALLS:
        added = found[f"timeout-adds-{load}"]
        assert added.outcome == MATCHES and added.spread.median == pytest.approx(0.8)
    assert (found["calls-answer-vllm_omni"].spread.median or 0) > 1
    assert found["calls-stop-liveserve"].spread.median == pytest.approx(0, abs=1e-9)
    assert found["backchannels-none"].spread.median == 0


def test_they_are_drawn(measured: Group) -> None:
    panels = {card.figure.name: card.panels for card in measured.cards}
    for name, draw in {card.name: card.draw for card in cards.group("duplex")}.items():
        with style():
            picture = draw(panels[name]) if draw else None
        assert isinstance(picture, Picture) and "seeds 0, 1, 2" in picture.caption
        empty = {axes.get_ylabel() for axes in picture.figure.axes if not axes.lines}
        assert empty <= {"wasted tokens", "P90 TTFP, ms", ""}  # scripted calls generate nothing
