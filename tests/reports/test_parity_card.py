from math import inf
from pathlib import Path
from typing import Any

import pytest

from harness.experiments.point import Point
from harness.records.record import Measurement
from reports.cards import card as cards
from reports.cards.group import Group, load_group
from reports.claims.grading import GOOD, HOLDS, MATCHES, MISSES
from reports.figures.picture import Picture
from reports.figures.style import style
from reports.pages.group_page import write_group_report
from reports.papers.live import calls, parity
from tests.reports import framed, served
from tests.reports.figure_card import serve_cards, smaller
from tests.reports.page import Page
from tests.reports.written import Fails, Measure, never

pytestmark = pytest.mark.usefixtures("unrendered")


def measured(folder: Path, fails: Fails = never, measure: Measure = served.measure) -> Group:
    """The card with fewer users, both sides answered by the scripted servers, which know no device."""
    few = {"sessions": 16, "turns": 3}
    small = smaller(cards.figures()["live-parity"], lambda settings: settings | few)
    return load_group(serve_cards(folder, [small], fails, measure))


@pytest.mark.parametrize("card", (parity, calls), ids=("turns", "calls"))
def test_both_sides_serve_the_same_users_with_the_same_settings(card: Any) -> None:
    virtual, sockets = (card.EXPERIMENTS[side] for side in (parity.VIRTUAL, parity.SOCKETS))
    assert (virtual.device, sockets.device) == ("virtual", "sockets")
    assert virtual.model_dump(exclude={"device"}) == sockets.model_dump(exclude={"device"})


def test_turns_that_go_alike_match(tmp_path: Path) -> None:
    group = measured(tmp_path / "run")
    assert [(claim.outcome, claim.spread.median) for claim in group.claims] == [(MATCHES, 1)] * 6
    page = Page(write_group_report(group).read_text())
    head, *rows = page.section("Claims of virtual time")
    assert head[2] == "virtual time" and {row[2] for row in rows} == {"1.00 ×"}
    assert "live-parity" in page.ids


def test_turns_that_are_answered_later_over_sockets_miss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def later(point: Point) -> Measurement:
        late = 0.05 if point.device == "sockets" else 0.0
        monkeypatch.setattr(served, "TTFP_S", {"vllm_omni": 0.3 + late, "liveserve": 0.2 + late / 10})
        return served.measure(point)

    outcomes = outcomes_of(measured(tmp_path / "run", measure=later))
    assert outcomes["vllm_omni-audio_ttfp_p50"] == MISSES  # 350 ms and 300
    assert outcomes["liveserve-audio_ttfp_p50"] == MATCHES  # 205 ms and 200


def outcomes_of(group: Group) -> dict[str, str]:
    return {claim.claim.id: claim.outcome for claim in group.claims}


def calls_measured(folder: Path, monkeypatch: pytest.MonkeyPatch, late: float) -> Group:
    """The card of calls, answered by the scripted gateway, whose unbounded calls of sockets hit the wall `late`."""
    walls = {"virtual": 50.0, "sockets": 50.0 * late}
    monkeypatch.setattr(framed, "full_s", lambda point: inf if point.engine == "metronome" else walls[point.device])
    return load_group(serve_cards(folder, [cards.figures()["live-calls"]], measure=framed.measure))


def test_calls_that_go_alike_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = calls_measured(tmp_path / "run", monkeypatch, late=1.0)
    assert set(outcomes_of(group).values()) <= set(GOOD) and len(group.claims) == 5
    with style():
        assert isinstance(calls.draw(group.cards[0].panels), Picture)
    assert "live-calls" in Page(write_group_report(group).read_text()).ids


def test_calls_that_hit_the_wall_later_over_sockets_miss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = outcomes_of(calls_measured(tmp_path / "run", monkeypatch, late=1.3))
    assert outcomes["calls-vllm_realtime-wall_s"] == MISSES
    assert outcomes["calls-vllm_realtime-frame_latency_p50"] == HOLDS
