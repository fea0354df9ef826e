"""The parity card without a network: two sides that agree, two that do not, and one that failed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.experiment import Point
from harness.results import claim, write_summary
from reports import cards
from reports.claims import NOT_MEASURED, NOT_REPRODUCED, REPRODUCED
from reports.cli.card_points import asked, expanded
from reports.figures.picture import LeftOut, Picture
from reports.group import Group, load_group
from reports.group_page import write_group_report
from reports.papers.live import parity
from reports.style import style
from tests.reports import served
from tests.reports.page import Page
from tests.reports.written import Fails, never
from workloads.errors import UserError


def measured(folder: Path, fails: Fails = never) -> Group:
    """The card with fewer users, both sides answered by the scripted servers, which know no device."""
    card = cards.figures()["live-parity"]
    small = replace(
        card,
        experiments={
            panel: each.model_copy(update={"set": {**each.set, "sessions": 8, "turns": 2}})
            for panel, each in card.experiments.items()
        },
    )
    collection, points = expanded("live", {small.name: dict(small.experiments)})
    with claim(folder, collection) as points_dir:
        served.fill(points_dir, points, fails)
        write_summary(folder, collection.points)
    return load_group(folder)


def test_both_sides_serve_the_same_users_with_the_same_settings() -> None:
    virtual, sockets = (parity.EXPERIMENTS[side] for side in (parity.VIRTUAL, parity.SOCKETS))
    assert (virtual.device, sockets.device) == ("virtual", "sockets")
    assert virtual.model_dump(exclude={"device"}) == sockets.model_dump(exclude={"device"})


def test_sides_that_agree_are_reproduced_and_drawn(tmp_path: Path) -> None:
    group = measured(tmp_path / "run")
    assert {claim.verdict for claim in group.claims} == {REPRODUCED}
    assert len(group.claims) == 6 and all(claim.spread.median == 1 for claim in group.claims)
    page = Page(write_group_report(group).read_text())
    rows = page.section("What virtual time says")
    assert rows[0][2] == "virtual time" and {row[2] for row in rows[1:]} == {"1.00 ×"}
    assert "live-parity" in page.ids


def test_a_side_that_answers_later_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = served._measure

    def later(point: Point):
        late = 0.05 if point.device == "sockets" else 0.0
        monkeypatch.setattr(served, "TTFP_S", {"vllm_omni": 0.3 + late, "liveserve": 0.2 + late / 10})
        return answers(point)

    monkeypatch.setattr(served, "_measure", later)
    verdicts = {claim.claim.id: claim.verdict for claim in measured(tmp_path / "run").claims}
    assert verdicts["vllm_omni-audio_ttfp_p50"] == NOT_REPRODUCED  # 350 ms beside 300
    assert verdicts["liveserve-audio_ttfp_p50"] == REPRODUCED  # 205 ms beside 200


def test_a_side_without_a_point_leaves_the_other_to_be_seen(tmp_path: Path) -> None:
    group = measured(tmp_path / "run", lambda point: point.device == "sockets")
    assert {claim.verdict for claim in group.claims} == {NOT_MEASURED}
    (card,) = group.cards
    with style():
        assert isinstance(parity.draw(card.panels, {}), Picture)
        nothing = measured(tmp_path / "none", lambda point: True).cards[0].panels
        assert isinstance(parity.draw(nothing, {}), LeftOut)


def test_the_card_keeps_its_devices() -> None:
    figures = cards.chosen("live-parity")
    assert isinstance(figures, list)
    found = asked(figures, {}, 1, None, quick=True)["live-parity"]
    assert [each.device for each in found.values()] == ["virtual", "sockets"]
    with pytest.raises(UserError, match="run on device sockets and virtual only"):
        asked(figures, {}, 1, "cpu", quick=True)
