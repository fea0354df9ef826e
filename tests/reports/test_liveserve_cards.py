from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engines.server import ServerParams, resolve
from reports.cards import card as cards
from reports.cards.card import Figure
from reports.cards.group import Group
from reports.claims.quantities import of
from reports.papers.liveserve import fig15_right
from reports.papers.liveserve.common import LIMITS_S, PAIR_OF_QWEN, QWEN, effective_within
from tests.reports.figure_card import assert_drawn, smaller, whole_and_failed
from tests.reports.served import LEAD_S, PACKET_S

SPOKEN = ("fig4", "fig11-left", "fig11-right", "fig12", "fig13", "fig15-left", "fig15-right", "fig16-left", "fig18")
"""Cards of which the event log of spoken single turns says all."""


def small(name: str) -> Figure:
    """A shipped card with one seed and few requests, that come slowly enough for a steady window, and short replies:
    scripted servers have no slots to wait for."""

    def changed(settings: dict[str, Any]) -> dict[str, Any]:
        slower = {"rate": 0.5, "peak_rate": 0.5, "reply_tokens": 60}
        small = {name: slower[name] for name in slower.keys() & settings.keys()}
        return {**settings, **small, "requests": min(settings["requests"], 96)}

    return smaller(cards.figures()[f"liveserve-{name}"], changed, seeds=[0])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[Group, Group]:
    """The cards measured, and the same with every point failed."""
    return whole_and_failed(tmp_path_factory.mktemp("cards"), [small(name) for name in SPOKEN])


@pytest.mark.parametrize("name", SPOKEN)
def test_every_claim_finds_its_points_and_the_picture_is_drawn(served: tuple[Group, Group], name: str) -> None:
    whole, failed = ({card.figure.name: card for card in group.cards}[f"liveserve-{name}"] for group in served)
    assert {claim.claim.id: claim.spread.n for claim in whole.claims} == {c.id: 1 for c in whole.figure.claims}
    assert_drawn(whole, failed)


def panels(group: Group, name: str) -> dict[str, Any]:
    return dict({card.figure.name: card for card in group.cards}[f"liveserve-{name}"].panels)


def test_the_lead_is_read_off_the_log(served: tuple[Group, Group]) -> None:
    claim = fig15_right.CLAIMS["fig15-right-paced"]
    assert claim.measure(panels(served[0], "fig15-right")) == {0: pytest.approx(LEAD_S + PACKET_S)}


def test_effective_requests_per_second_within_a_limit_rise_to_those_without_one(served: tuple[Group, Group]) -> None:
    (point,) = of("c = 8", "vllm_omni", p=0.5).points(panels(served[0], "fig13"))
    rates = np.array([effective_within(limit_s)(point) for limit_s in (0.0, *LIMITS_S, np.inf)], float)
    assert rates[0] == 0 and (np.diff(rates) >= 0).all()
    assert rates[-1] == point.value("effective_rps")


def test_the_pair_that_sessions_have_is_a_part_of_the_papers_server_in_its_proportions() -> None:
    stages, whole = (resolve(ServerParams.model_validate({"deployment": name})).stages for name in (PAIR_OF_QWEN, QWEN))
    assert stages.keys() == whole.keys()
    assert len({len(whole[name].gpus) / len(stages[name].gpus) for name in stages}) == 1
    for name, stage in stages.items():
        assert replace(stage, gpus=whole[name].gpus) == whole[name]
