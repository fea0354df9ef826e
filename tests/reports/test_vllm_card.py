"""The card of vLLM's releases, on scripted servers of which one answers later on the newest release."""

from dataclasses import replace

import pytest

from docs.vllm_releases import filled
from harness.experiments.point import Point
from harness.records.record import Measurement
from reports.cards import card as cards
from reports.cards.group import Group, load_group
from reports.claims.grading import DOES_NOT, HOLDS
from reports.figures.picture import Picture
from reports.figures.style import style
from reports.papers.vllm import releases
from reports.papers.vllm.releases import RELEASES, TEXT, VOICE
from tests.reports import served
from tests.reports.figure_card import serve_cards, smaller

SMALL = {"sessions": 3, "turns": 2, "rounds": 2}


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Group:
    (figure,) = cards.group("vllm")
    small = smaller(figure, lambda settings: {name: SMALL.get(name, settings[name]) for name in settings})
    shown = replace(small, experiments={panel: small.experiments[panel] for panel in (VOICE, TEXT)})
    with pytest.MonkeyPatch.context() as patch:

        def measure(point: Point) -> Measurement:
            later = point.engine == "liveserve" and point.params["vllm"] == RELEASES[-1]
            patch.setitem(served.TTFP_S, "liveserve", 0.3 if later else 0.2)
            return served.measure(point)

        return load_group(serve_cards(tmp_path_factory.mktemp("vllm") / "run", [shown], measure=measure))


def test_a_release_that_serves_otherwise_is_found_by_the_bytes(group: Group):
    found = {each.claim.id: each for each in group.claims}
    old, middle, new = RELEASES
    wanted = {f"liveserve-{middle}": HOLDS, f"vllm_omni-{new}": HOLDS, f"liveserve-{new}": DOES_NOT}
    assert {name: found[f"voice-{name}"].outcome for name in wanted} == wanted
    assert found[f"voice-liveserve-{new}"].spread.median == 0
    assert old not in {name.rpartition("-")[2] for name in found}


def test_the_table_tells_a_number_once_where_releases_agree(group: Group):
    (card,) = group.cards
    head, *lines = releases.table(card.panels)
    rows = {(line[0], line[1]): dict(zip(head[2:], line[2:], strict=True)) for line in lines}
    assert rows.keys() == {(panel, engine) for panel, run in card.panels.items() for engine in run.experiment.engines}
    same, changed = rows[VOICE, "vllm_omni"], rows[VOICE, "liveserve"]
    assert same["same bytes"] == "3 of 3 · 3 of 3" and "·" not in same[releases.ANSWER]
    assert changed["same bytes"] == "3 of 3 · 0 of 3"
    first, second, third = changed[releases.ANSWER].split(" · ")
    assert first == second and int(third) == int(first) + 100
    page = filled("# x\n<!-- releases -->\nold\n<!-- end -->\n", group.folder)
    assert "old" not in page and f"| {VOICE} | liveserve | {changed[releases.ANSWER]} |" in page


def test_it_is_drawn(group: Group):
    with style():
        picture = releases.draw(group.cards[0].panels)
    assert isinstance(picture, Picture) and "seeds 0, 1, 2" in picture.caption and picture.figure.axes[0].lines
