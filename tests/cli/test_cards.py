import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reports.cards import card as cards
from reports.claims.claim import Claim
from reports.claims.quantities import of, value
from tests.conftest import Rehearse
from tests.harness import fakes
from tests.reports.figure_card import figure

ONE = fakes.experiment(3, c=[1, 2])
CLAIM = Claim("grows", "it grows", 0.1, value("audio_ttfp_p50", of("a", "vllm_omni", c=1)), 0.05, "s", 0)


def ship(monkeypatch: pytest.MonkeyPatch, figures: list[cards.Figure]) -> None:
    """These are the figure cards that there are."""
    listed = {each.name: cards.Listed(each.name, each.group, each.title, bool(each.needs), "") for each in figures}
    monkeypatch.setattr(cards, "index", lambda: listed)
    monkeypatch.setattr(cards, "figures", lambda: {each.name: each for each in figures})


@pytest.fixture(autouse=True)
def two_cards(monkeypatch: pytest.MonkeyPatch, work: Callable) -> None:
    """Cards that share the points at c = 1, measured by a stand-in."""
    narrow = ONE.model_copy(update={"grid": {}, "set": {**ONE.set, "c": 1}})
    shipped = [
        figure("liveserve-first", experiments={"a": ONE}, claims=[CLAIM], draw=None, quick={"c": "1"}),
        figure("liveserve-second", experiments={"b": narrow}, claims=[], draw=None, quick={"turns": "1"}),
    ]
    ship(monkeypatch, shipped)
    work(fakes.measure)


def test_a_group_measures_each_point_once_and_none_again_that_a_card_measured(rehearse: Rehearse) -> None:
    status, out, _ = rehearse("run", "liveserve-second")
    assert status == 0 and "it grows" not in out  # the claim is of the other card
    status, out, err = rehearse("run", "liveserve", "--jobs", "2")
    assert status == 0 and "3 of 6 points are finished already" in err
    assert "it grows" in out and "results/liveserve/report.html" in out
    assert len(list(Path("results/liveserve/points").iterdir())) == 6  # c = 1 and 2, three seeds each
    assert len(json.loads(Path("results/liveserve/summary.json").read_text())) == 6
    assert "it grows" in rehearse("report", "results/liveserve")[1]


def test_quick_has_one_seed_and_a_directory_of_its_own(rehearse: Rehearse) -> None:
    rehearse("run", "liveserve", "--quick")
    # c = 1 of both cards, which differ in the number of turns
    assert len(list(Path("results/liveserve-quick/points").iterdir())) == 2


def test_claims_as_json_hold_every_seed(rehearse: Rehearse) -> None:
    rehearse("run", "liveserve")
    status, out, _ = rehearse("claims", "liveserve", "--json")
    (claim,) = json.loads(out)
    expected = {"by_seed": {"0": 0.0, "1": 0.1, "2": 0.2}, "ours": 0.1, "n": 3, "outcome": "inconclusive"}
    assert status == 0 and claim | expected | {"interval": [0.0, 0.2], "paper": 0.1} == claim


def test_a_card_without_its_weights_is_skipped(rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch) -> None:
    needy = figure("liveserve-third", experiments={}, claims=[replace(CLAIM, id="said")], needs="the weights of X")
    ship(monkeypatch, [*cards.figures().values(), needy])
    status, out, err = rehearse("run", "liveserve-third")
    assert (status, out) == (2, "") and "liveserve-third cannot be measured here: it needs the weights of X" in err
    status, _, err = rehearse("run", "liveserve", "--seeds", "3")
    assert status == 0 and "liveserve-third: skipped, needs the weights of X" in err
    found = {claim["id"]: claim for claim in json.loads(rehearse("claims", "liveserve", "--json")[1])}
    assert found["said"]["outcome"] == "not measured" and found["said"]["needs"] == "the weights of X"
    listed = {card["name"]: card for card in json.loads(rehearse("list", "cards", "--json")[1])}
    assert "needs the weights of X" in listed["liveserve-third"]["summary"]
    assert listed["bench"]["group"] == "" and listed["liveserve-first"]["group"] == "liveserve"


def test_a_directory_of_cards_is_not_one_experiment_nor_the_reverse(rehearse: Rehearse) -> None:
    rehearse("run", "liveserve", "--seeds", "1")
    assert "rehearse claims liveserve" in rehearse("compare", "results/liveserve", "results/liveserve")[2]
    assert "figure cards" in rehearse("run", "results/liveserve")[2]
    Path("e.yaml").write_text("{name: liveserve, engines: [vllm_omni], workload: voice, set: {sessions: 2}}")
    assert "choose another --out" in rehearse("run", "e.yaml", "--out", "results/liveserve")[2]
    assert "no cards of a paper" in rehearse("claims", "liveserve", "--results", ".")[2]
