from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from reports.cards import card as cards
from reports.cards.card import Figure
from reports.cards.group import Group
from reports.papers.metronome import fig9
from reports.papers.metronome.fig7 import oldest_call
from reports.papers.metronome.measures import latency_median, speech_after_wall, worst_bucket
from tests.reports import framed
from tests.reports.figure_card import assert_drawn, smaller, whole_and_failed

NAMES = [card.name for card in cards.group("metronome") if not card.needs]


def small(name: str) -> Figure:
    """A shipped card on one seed, for 68 s, in which 512 sessions can come at 8 a second."""

    def shorter(settings: dict[str, Any]) -> dict[str, Any]:
        fewer = {"sessions": min(settings["sessions"], 512)} if "sessions" in settings else {}
        return {**settings, "duration_s": 68.0, **fewer}

    # Moshi's frames of 80 ms make long logs.
    return smaller(cards.figures()[name], shorter, seeds=[0], without="Moshi")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[Group, Group]:
    """The cards measured, and the same with every point failed."""
    probes = [card for card in cards.group("metronome") if card.needs]
    shown = [small(name) for name in NAMES]
    return whole_and_failed(tmp_path_factory.mktemp("cards"), shown, probes, framed.measure)


@pytest.mark.parametrize("name", NAMES)
def test_every_claim_finds_its_points_and_the_picture_is_drawn(served: tuple[Group, Group], name: str) -> None:
    whole, failed = ({card.figure.name: card for card in group.cards}[name] for group in served)
    assert all(found.values for found in whole.claims)
    unknown = {found.claim.id for found in whole.claims if found.spread.n == 0}
    # A gateway that goes silent carries nobody, and loses nobody: there is no ratio to that.
    assert unknown <= {"fig9-more", "appendix-b-window"}
    assert_drawn(whole, failed)


def test_before_and_after_the_wall(served: tuple[Group, Group]) -> None:
    panels = {card.figure.name: card for card in served[0].cards}["metronome-fig1"].panels
    points = {point.point.engine: point for run in [*panels.values()][::-1] for point in reversed(run.points)}
    unbounded, windowed = points["vllm_realtime"], points["metronome"]
    before, after = (latency_median(after_wall=after) for after in (False, True))
    assert callable(before) and callable(after)
    assert before(unbounded) == pytest.approx(0.004)
    assert after(unbounded) == pytest.approx(1.6)
    assert speech_after_wall(unbounded) == 0 and speech_after_wall(windowed) is None
    assert after(windowed) is None
    assert worst_bucket(windowed) == pytest.approx(framed.OTHERS_S)


def test_worst_bucket_leaves_out_the_first() -> None:
    columns = ["first", "dispatch_s", "latency_s"]
    rows = [(True, 4.0, 0.3), (False, 6.0, 0.3), (False, 12.0, 0.003), (False, 26.0, 0.004)]
    all_of_them, begun = (pd.DataFrame(some, columns=columns) for some in (rows, rows[:2]))
    point: Any = SimpleNamespace(requests=all_of_them)
    assert worst_bucket(point) == pytest.approx(0.004)
    point.requests = begun
    assert worst_bucket(point) is None


def test_the_oldest_call_has_the_tokens_of_its_frames_until_the_last_call_is_admitted() -> None:
    rows = [(0, "admitted", 7, 0), (1, "fed", 7, 28), (2, "frame_out", 7, 12), (2, "fed", 8, 28)]
    rows += [(3, "admitted", 8, 0), (4, "fed", 7, 28)]
    log = pd.DataFrame(rows, columns=["t", "kind", "session", "value"])
    point: Any = SimpleNamespace(kinds=lambda *kinds: log, params={"window": 100})
    assert oldest_call(point) == pytest.approx((28 + 12) / 100)


@pytest.mark.parametrize(
    ("carried", "capacity"),
    [
        ({8: True, 32: True, 16: True}, (32, True)),
        ({8: True, 32: True, 16: True, 24: False}, (16, False)),
        ({8: False}, (0, False)),
        ({}, None),
    ],
)
def test_capacity_is_the_largest_n_below_every_failure(
    monkeypatch: pytest.MonkeyPatch, carried: dict[int, bool], capacity: tuple[int, bool] | None
) -> None:
    monkeypatch.setattr(fig9, "carried", lambda point: carried[point.params["sessions"]])
    runs: list[Any] = [SimpleNamespace(params={"sessions": n}, error=None) for n in carried]
    assert fig9.capacity(runs) == capacity
