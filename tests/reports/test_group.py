"""A group of figure cards: shared points, claims, and a page that is true to them."""

from pathlib import Path

import pytest

from harness.by_device import override
from harness.experiments.point import Point
from reports.cards import card as cards
from reports.cards.group import NO_PREVIEW, load_group
from reports.claims.grading import INCONCLUSIVE, NOT_MEASURED
from reports.claims.sensitivity import KEPT, LOST
from reports.cli.contract import check_cards
from reports.pages.group_page import write_group_report
from tests.reports.figure_card import EXPERIMENTS, figure, sensitive, serve_cards
from tests.reports.page import Page
from workloads.errors import UserError

pytestmark = pytest.mark.usefixtures("unrendered")


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch):
    """Makes these figure cards all there are."""

    def set_cards(*figures: cards.Figure) -> list[cards.Figure]:
        listed = {f.name: cards.Listed(f.name, f.group, f.title, bool(f.needs), "reports.bench") for f in figures}
        monkeypatch.setattr(cards, "figures", lambda: {figure.name: figure for figure in figures})
        monkeypatch.setattr(cards, "index", lambda: listed)
        return list(figures)

    return set_cards


def broken(point: Point) -> bool:
    return point.engine == "liveserve" and point.seed == 2 and point.params["p"] == 0


def test_outcomes_reach_the_page(only, tmp_path: Path) -> None:
    folder = serve_cards(tmp_path / "run", only(figure()))
    html = write_group_report(load_group(folder)).read_text()
    rows = Page(html).section("Claims of the paper")[1:]
    outcomes = {row[1].split(" | ")[0]: row[4] for row in rows if row[0]}
    assert outcomes == {
        "TTFP falls <by a third>": "matches | predicted",
        "TTFP falls to a tenth": "same direction | predicted",
        "TTFP doubles": "misses | predicted",
        "TTFP": "matches | fitted",
        "at c = 32": "not measured | predicted",
    }
    [together] = [row for row in rows if not row[0]]
    assert together[1:3] == ["Sec. 3: TTFP (2 claims)", "same direction | predicted"]
    by_text = {row[1].split(" | ")[0]: row for row in rows}
    assert by_text["TTFP doubles"][5] == "here it is 0.667" and "another figure" in by_text["TTFP doubles"][1]
    assert by_text["TTFP falls to a tenth"][5] == "not explained yet"
    assert by_text["TTFP"][2:4] == ["300.0 ms", "300.0 ms | 300.0 to 300.0 ms, 3 seeds"]
    assert "<by a third>" not in html and "http" not in html


def test_a_page_is_whole(only, tmp_path: Path) -> None:
    folder = serve_cards(tmp_path / "run", only(figure(), figure("liveserve-twin")))
    page = Page(write_group_report(load_group(folder)).read_text())
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    names = {f"liveserve-{name}.svg" for name in ("small", "twin")}
    assert {path.name for path in (folder / "figures").iterdir()} == names


def test_a_point_of_two_cards_is_measured_once(only, tmp_path: Path) -> None:
    twice = only(figure(), figure("liveserve-twin", experiments={"other": EXPERIMENTS["loud"]}))
    group = load_group(serve_cards(tmp_path / "run", twice))
    assert len(group.points) == len(list((tmp_path / "run" / "points").iterdir())) == 18
    assert {p.point.id for p in group.cards[1].points} <= {p.point.id for p in group.cards[0].points}
    # Each panel sees the point with its own axes.
    assert {p.point.axes for p in group.cards[0].panels["quiet"].points} == {("c",)}
    assert {p.point.axes for p in group.cards[1].panels["other"].points} == {()}


def test_a_failed_point_is_shown_and_missing_from_its_claims(only, tmp_path: Path) -> None:
    folder = serve_cards(tmp_path / "run", only(figure()), broken)
    group = load_group(folder)
    assert {claim.claim.id: claim.outcome for claim in group.claims}["ttfp"] == INCONCLUSIVE
    assert group.claims[0].values == {0: pytest.approx(2 / 3), 1: pytest.approx(2 / 3), 2: None}
    page = Page(write_group_report(group).read_text())
    assert [row[0] for row in page.section("Failed points")][:2] == [
        "quiet: liveserve c=8 seed=2",
        "quiet: liveserve c=16 seed=2",
    ]
    logs = [folder / link for link in page.links if link.endswith("log.txt")]
    assert len(logs) == 2 and all(log.is_file() for log in logs)


def test_one_seed_has_values_and_no_outcome(only, tmp_path: Path) -> None:
    once = {name: each.model_copy(update={"seeds": [0]}) for name, each in EXPERIMENTS.items()}
    group = load_group(serve_cards(tmp_path / "run", only(figure(experiments=once))))
    assert [c.outcome for c in group.claims] == [INCONCLUSIVE] * 4 + [NOT_MEASURED]
    assert group.claims[0].ours == "0.67 ×" and group.claims[0].interval == "1 seed"
    assert write_group_report(group).exists()


def test_other_settings_than_the_cards_are_no_preview(only, tmp_path: Path) -> None:
    only(figure())
    small = {name: override(each, {"sessions": 4}) for name, each in EXPERIMENTS.items()}
    fewer = {name: override(each, {}, seeds=1) for name, each in EXPERIMENTS.items()}
    for experiments, said in ((small, NO_PREVIEW), (fewer, ""), (EXPERIMENTS, "")):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        group = load_group(serve_cards(folder, [figure(experiments=experiments)]))
        assert group.caveat == said
        assert (NO_PREVIEW in write_group_report(group).read_text()) == bool(said)


def test_a_card_that_needs_something_has_its_claims_and_says_so(only, tmp_path: Path) -> None:
    lacking = figure("liveserve-twin", experiments={}, needs="the <weights> of X", draw=None)
    first, _ = only(figure(), lacking)
    html = write_group_report(load_group(serve_cards(tmp_path / "run", [first]))).read_text()
    assert "Not measured: needs the &lt;weights&gt; of X." in html and "rehearse run liveserve-twin" not in html
    assert "twin" not in {row[0] for row in Page(html).section("Claims of the paper")[1:]}
    own = html.split('id="liveserve-twin"')[1]  # its claims stand with the card alone
    assert "not measured" in own and own.count("needs the &lt;weights&gt; of X") == 1 + len(lacking.claims)


def test_a_page_of_one_card_is_that_card(only, tmp_path: Path) -> None:
    first, _ = only(figure(reference="Small (2026)"), figure("liveserve-twin"))
    group = load_group(serve_cards(tmp_path / "run", [first]))
    assert {claim.card for claim in group.claims} == {first.name}
    assert group.not_asked == ["liveserve-twin"]
    html = write_group_report(group).read_text()
    assert f"<h1>{first.title}</h1>" in html and "twin" not in html
    assert "The paper: Small (2026)." in html
    assert "1 other card of liveserve was not run: <code>rehearse run liveserve</code>" in html


def test_another_card_joins_the_directory(only, tmp_path: Path) -> None:
    first, second = only(figure(), figure("liveserve-twin", experiments={"x": EXPERIMENTS["loud"]}))
    serve_cards(tmp_path / "run", [second])
    assert [len(card.points) for card in load_group(tmp_path / "run").cards] == [6]
    serve_cards(tmp_path / "run", [first])
    assert [len(card.points) for card in load_group(tmp_path / "run").cards] == [18, 6]


def test_the_sign_of_each_claim_under_each_variation(only, tmp_path: Path) -> None:
    moved = sensitive({"more callers": {"c": 8}, "slower network": {"network_ms": 50}})
    group = load_group(serve_cards(tmp_path / "run", only(figure(), moved)))
    signs = {claim.claim.id: {name: cell.sign for name, cell in cells.items()} for _, claim, cells in group.sensitivity}
    assert signs == {
        "ttfp": dict.fromkeys(("more callers", "slower network"), KEPT),
        "far": dict.fromkeys(("more callers", "slower network"), KEPT),
        "up": dict.fromkeys(("more callers", "slower network"), LOST),
    }
    rows = Page(write_group_report(group).read_text()).section("Which claims keep their sign")
    assert rows[0][2:] == ["more callers", "slower network"]
    assert rows[1][2:] == ["kept | 0.67 ×"] * 2 and rows[3][2:] == ["lost | 0.67 ×"] * 2


def test_a_damaged_or_foreign_directory_is_one_sentence(only, tmp_path: Path) -> None:
    folder = serve_cards(tmp_path / "run", only(figure()))
    with pytest.raises(UserError, match="no cards of a paper"):
        load_group(tmp_path)
    record = next((folder / "points").iterdir())
    (record / "manifest.json").write_text("{")
    with pytest.raises(UserError, match="not a readable record"):
        load_group(folder)
    (folder / "collection.json").write_text("{")
    with pytest.raises(UserError, match="damaged"):
        load_group(folder)


def test_what_is_read_from_the_text_of_the_cards_is_what_they_say() -> None:
    said = [(name, card.group, card.title, bool(card.needs)) for name, card in cards.figures().items()]
    assert said == [(each.name, each.group, each.title, each.needs) for each in cards.index().values()]


@pytest.mark.parametrize("group", cards.group_names())
def test_the_cards_that_ship_have_claims_of_their_own_and_settings_that_exist(group: str) -> None:
    check_cards(group)
