from collections.abc import Callable
from pathlib import Path

import pytest

from harness.by_device import override
from harness.experiments.point import Point
from reports.cards import card as cards
from reports.cards.group import NO_PREVIEW, Group, load_group
from reports.claims.grading import INCONCLUSIVE
from reports.claims.sensitivity import KEPT, LOST
from reports.cli.contract import check_cards
from reports.pages.group_page import write_group_report
from tests.reports.figure_card import EXPERIMENTS, figure, sensitive, serve_cards
from tests.reports.page import Page
from tests.reports.written import Fails, never
from workloads.errors import UserError

pytestmark = pytest.mark.usefixtures("unrendered")

Measured = Callable[..., Group]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Measured:
    """Makes figure cards all there are, and measures them, or the first few alone."""

    def measured(*figures: cards.Figure, fails: Fails = never, few: int | None = None) -> Group:
        listed = {f.name: cards.Listed(f.name, f.group, f.title, bool(f.needs), "reports.bench") for f in figures}
        monkeypatch.setattr(cards, "figures", lambda: {figure.name: figure for figure in figures})
        monkeypatch.setattr(cards, "index", lambda: listed)
        return load_group(serve_cards(tmp_path / "run", list(figures[:few]), fails))

    return measured


def page_of(group: Group) -> Page:
    return Page(write_group_report(group).read_text())


def broken(point: Point) -> bool:
    return point.engine == "liveserve" and point.seed == 2 and point.params["p"] == 0


def test_outcomes_reach_the_page(measured: Measured) -> None:
    html = write_group_report(measured(figure())).read_text()
    rows = Page(html).section("Claims of the paper")[1:]
    by_text = {row[1].split(" | ")[0]: row for row in rows}
    assert {text: row[4] for text, row in by_text.items() if row[0]} == {
        "TTFP falls <by a third>": "matches | predicted",
        "TTFP falls to a tenth": "same direction | predicted",
        "TTFP doubles": "misses | predicted",
        "TTFP": "matches | fitted",
        "at c = 32": "not measured | predicted",
    }
    [together] = [row for row in rows if not row[0]]
    assert together[1:3] == ["Sec. 3: TTFP (2 claims)", "same direction | predicted"]
    assert by_text["TTFP doubles"][5] == "here it is 0.667"
    assert by_text["TTFP falls to a tenth"][5] == "not explained yet"
    assert by_text["TTFP"][2:4] == ["300.0 ms", "300.0 ms | 300.0 to 300.0 ms, 3 seeds"]
    assert "<by a third>" not in html  # escaped


def test_a_point_of_two_cards_is_measured_once(measured: Measured) -> None:
    group = measured(figure(), figure("liveserve-twin", experiments={"other": EXPERIMENTS["loud"]}))
    assert len(list((group.folder / "points").iterdir())) == 18
    first, second = group.cards
    assert {point.point.id for point in second.points} <= {point.point.id for point in first.points}
    # Each panel sees the point with its own axes.
    assert {point.point.axes for point in first.panels["quiet"].points} == {("c",)}
    assert {point.point.axes for point in second.panels["other"].points} == {()}


def test_a_failed_point_is_shown_and_missing_from_its_claims(measured: Measured) -> None:
    group = measured(figure(), fails=broken)
    assert {claim.claim.id: claim.outcome for claim in group.claims}["ttfp"] == INCONCLUSIVE
    assert group.claims[0].values == {0: pytest.approx(2 / 3), 1: pytest.approx(2 / 3), 2: None}
    page = page_of(group)
    failed = [f"quiet: liveserve c={c} seed=2" for c in (8, 16)]
    assert [row[0] for row in page.section("Failed points")][:2] == failed
    logs = [group.folder / link for link in page.links if link.endswith("log.txt")]
    assert len(logs) == 2 and all(log.is_file() for log in logs)


@pytest.mark.parametrize(
    ("settings", "seeds", "said"), [({"sessions": 4}, None, NO_PREVIEW), ({}, 1, ""), ({}, None, "")]
)
def test_other_settings_than_the_cards_are_no_preview(
    measured: Measured, settings: dict[str, int], seeds: int | None, said: str, tmp_path: Path
) -> None:
    measured(figure())
    other = {name: override(each, settings, seeds=seeds) for name, each in EXPERIMENTS.items()}
    group = load_group(serve_cards(tmp_path / "other", [figure(experiments=other)]))
    assert group.caveat == said
    assert (NO_PREVIEW in write_group_report(group).read_text()) == bool(said)


def test_a_card_that_needs_something_says_so_and_its_claims_are_not_measured(measured: Measured) -> None:
    lacking = figure("liveserve-twin", experiments={}, needs="the <weights> of X", draw=None)
    html = write_group_report(measured(figure(), lacking, few=1)).read_text()
    assert "Not measured: needs the &lt;weights&gt; of X." in html
    assert "twin" not in {row[0] for row in Page(html).section("Claims of the paper")[1:]}
    own = html.split('id="liveserve-twin"')[1]
    assert own.count("needs the &lt;weights&gt; of X") == 1 + len(lacking.claims)


def test_a_page_of_one_card_has_no_other(measured: Measured) -> None:
    first = figure(reference="Small (2026)")
    group = measured(first, figure("liveserve-twin"), few=1)
    assert {claim.card for claim in group.claims} == {first.name}
    assert group.not_asked == ["liveserve-twin"]
    html = write_group_report(group).read_text()
    assert f"<h1>{first.title}</h1>" in html and "twin" not in html
    assert "1 other card of liveserve was not run: <code>rehearse run liveserve</code>" in html


def test_the_sign_of_each_claim_under_each_variation(measured: Measured) -> None:
    group = measured(figure(), sensitive({"more callers": {"c": 8}, "slower network": {"network_ms": 50}}))
    signs = {claim.claim.id: [cell.sign for cell in cells.values()] for _, claim, cells in group.sensitivity}
    assert signs == {"ttfp": [KEPT] * 2, "far": [KEPT] * 2, "up": [LOST] * 2}
    head, *rows = page_of(group).section("Which claims keep their sign")
    assert head[2:] == ["more callers", "slower network"]
    assert rows[0][2:] == ["kept | 0.67 ×"] * 2 and rows[2][2:] == ["lost | 0.67 ×"] * 2


def test_a_damaged_or_foreign_directory_is_refused(measured: Measured, tmp_path: Path) -> None:
    folder = measured(figure()).folder
    with pytest.raises(UserError, match="no cards of a paper"):
        load_group(tmp_path)
    (next((folder / "points").iterdir()) / "manifest.json").write_text("{")
    with pytest.raises(UserError, match="not a readable record"):
        load_group(folder)
    (folder / "collection.json").write_text("{")
    with pytest.raises(UserError, match="damaged"):
        load_group(folder)


def test_the_index_of_cards_is_what_the_imported_cards_say() -> None:
    said = [(name, card.group, card.title, bool(card.needs)) for name, card in cards.figures().items()]
    assert said == [(each.name, each.group, each.title, each.needs) for each in cards.index().values()]


@pytest.mark.parametrize("group", cards.group_names())
def test_the_cards_that_ship_have_claims_of_their_own_and_settings_that_exist(group: str) -> None:
    check_cards(group)
