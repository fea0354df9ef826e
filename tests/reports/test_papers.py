import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import invalidate_caches
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from reports.cards import card as cards
from reports.cards import papers as found
from reports.cards.group import load_group
from reports.cards.papers import papers
from reports.cli.contract import check_cards
from reports.figures import style
from reports.figures.style import engine_looks, names
from reports.pages.group_page import write_group_report
from reports.pages.paper_page import filled
from tests.conftest import Rehearse
from tests.reports.figure_card import serve_cards
from workloads.errors import UserError

ABOUT = """
REFERENCE = "Mine (2026)"
NAMES = {"mine_engine": "Mine", "liveserve": "Other"}
COLOURS = {"mine_engine": "#123456", "liveserve": "#000000"}
ORDER_SEED = 7
"""
CARD = """
from reports.claims.quantities import of, ratio
from reports.claims.stated import claim, times
from reports.figures.forms import bars, figure
from reports.papers.experiment import experiment

TITLE = "Fig. 2: mine"
EXPERIMENTS = {"a": experiment("a", ["vllm_omni", "liveserve"], "voice", {"sessions": 6, "turns": 2, "p": 0.0, "c": 8})}
CLAIMS = {
    "fig2-faster": claim(
        "faster", times(0.6, within=0.1), ratio("audio_ttfp_p50", of("a", "liveserve"), to=of("a", "vllm_omni"))
    ),
}
draw = figure(TITLE, bars("audio_ttfp_p50", {"liveserve": {"": of("a", "liveserve")}}), caption="Mine.")
"""
Install = Callable[..., Path]


def forget() -> None:
    for cached in (papers, cards.index, cards._figure, style.names, style._colours):
        cached.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package with the paper `mine`, of these modules; gives its folder."""
    entries: list[EntryPoint] = []
    monkeypatch.setattr(found, "entry_points", lambda group: entries * (group == "rehearsal.papers"))
    (tmp_path / "site").mkdir()
    monkeypatch.syspath_prepend(tmp_path / "site")
    count = 0

    def install(about: str = ABOUT, name: str = "mine", **modules: str) -> Path:
        nonlocal count
        count += 1
        package = f"rehearsal_test_paper_{tmp_path.name}_{count}"
        folder = tmp_path / "site" / package
        folder.mkdir()
        (folder / "__init__.py").write_text(about)
        for module, text in modules.items():
            (folder / f"{module}.py").write_text(text)
        entries.append(EntryPoint(name, package, "rehearsal.papers"))
        invalidate_caches()
        forget()
        return folder

    yield install
    monkeypatch.undo()
    forget()


def test_cards_of_a_package_are_cards_like_ours(install: Install, rehearse: Rehearse) -> None:
    before = [*cards.figures()]
    install(fig10=CARD, fig2=CARD, helper="ONE = 1\n")
    assert [name for name in cards.figures() if name not in before] == ["mine-fig2", "mine-fig10"]
    (second, _) = cards.group("mine")
    assert (second.name, second.reference, second.order_seed) == ("mine-fig2", "Mine (2026)", 7)
    listed = json.loads(rehearse("list", "cards", "--json")[1])
    assert {"mine-fig2", "mine-fig10", "bench", "nova-fig11"} <= {each["name"] for each in listed}
    assert rehearse("run", "mine-fig2", "--dry-run")[0] == 0


def test_a_folder_named_as_a_paper_is_no_source_unless_it_has_results(install: Install, rehearse: Rehearse) -> None:
    install(fig2=CARD)
    for name in ("mine", "other"):
        Path(name).mkdir()
    assert rehearse("run", "mine", "--dry-run")[0] == 0
    assert "other is a folder without results" in rehearse("run", "other", "--dry-run")[2]
    Path("mine/experiment.json").write_text("{}")
    assert "mine/experiment.json" in rehearse("run", "mine", "--dry-run")[2]


def test_its_engines_have_their_names_and_colours_and_ours_keep_theirs(install: Install) -> None:
    install()
    assert names()["mine_engine"] == "Mine" and names()["liveserve"] == "LiveServe"
    looks = engine_looks("liveserve", "mine_engine")
    assert [looks[name].colour for name in looks] == ["#d55e00", "#123456"]


def test_the_card_of_the_documentation_is_a_card(install: Install, rehearse: Rehearse) -> None:
    page = (Path(__file__).parents[2] / "docs" / "extend.md").read_text()
    (block,) = [each for each in page.split("```python\n")[1:] if "EXPERIMENTS" in each]
    install(fig3=block.split("```")[0])
    check_cards("mine")
    assert rehearse("run", "mine-fig3", "--quick", "--dry-run")[0] == 0


BAD_CLAIM = CARD.replace("within=0.1", "within=0.3")
OTHER_UNIT = CARD.replace("times(0.6, within=0.1)", "level(0.6, 'furlong')").replace("claim, times", "claim, level")
WHERE = "fig2.py, line"
FAULTS = [
    (BAD_CLAIM, "ValueError: claim 'faster': its band 0.3 to 0.9 is wider than", WHERE),
    (CARD + "draw = (\n", "cannot be read: SyntaxError: '(' was never closed", WHERE),
    (CARD.replace('"Fig. 2: mine"', "str(2)", 1), "TITLE is no plain text", "fig2"),
    (CARD.replace("times(0.6, within=0.1)", "'0.6'"), "ValueError: its number is '0.6'", "write times"),
    (OTHER_UNIT, "ValueError: unit 'furlong' is none of '×', '%'", WHERE),
    (CARD + "CLAIMS = [*CLAIMS]\n", "CLAIMS is a list; write a dictionary", "Correct"),
]


@pytest.mark.parametrize(("text", "fault", "more"), FAULTS)
def test_a_faulty_card_harms_no_other(install: Install, rehearse: Rehearse, text: str, fault: str, more: str) -> None:
    install(fig2=text, fig3=CARD)
    said = f"card mine-fig2: {fault}"
    for asked in (("run", "mine-fig2"), ("list", "cards", "mine-fig2"), ("claims", "mine")):
        status, out, err = rehearse(*asked)
        assert (status, out) == (2, "") and said in err and more in err and err.count("\n") == 1, asked
    assert rehearse("run", "mine-fig3", "--dry-run")[0] == rehearse("list", "cards", "conserve-fig3")[0] == 0
    listed = {each["name"]: each for each in json.loads(rehearse("list", "cards", "--json")[1])}
    assert said in listed["mine-fig2"]["fault"]
    assert listed["mine-fig3"]["experiments"]


ABSENT = [
    ('"liveserve"], "voice"', '"livserve"], "voice"', "unknown engine 'livserve'"),
    ('"turns": 2', '"turms": 2', "unknown parameter 'turms'"),
    ("audio_ttfp_p50", "audio_tftp_p50", "claim fig2-faster: metric: unknown metric 'audio_tftp_p50'"),
    ('to=of("a"', 'to=of("b"', "claim fig2-faster: unknown panel 'b'"),
    ('of("a", "liveserve"), to=of("a", "vllm_omni")', 'of("a", "nova"), to=of("a", "x")', "no point of the card has"),
]


@pytest.mark.parametrize(("right", "wrong", "sentence"), ABSENT)
def test_a_card_that_names_what_is_not_there_is_found_before_a_run(
    install: Install, rehearse: Rehearse, right: str, wrong: str, sentence: str
) -> None:
    assert right in CARD
    install(fig2=CARD.replace(right, wrong, 1))
    status, out, err = rehearse("run", "mine-fig2", "--dry-run")
    assert (status, out) == (2, "") and sentence in err and err.count("\n") == 1
    with pytest.raises(UserError, match=re.escape(sentence)):
        check_cards("mine")


@pytest.mark.parametrize(
    ("about", "sentence"),
    [
        ('COLOURS = {"mine_engine": "red"}\n', r"parameter 'colours.mine_engine' .*, got 'red'"),
        ("NAMES = dict(a=1)\n", "NAMES is no plain constant"),
        ("NAMES = {\n", "cannot be read: SyntaxError"),
    ],
)
def test_a_faulty_paper_harms_no_other(install: Install, rehearse: Rehearse, about: str, sentence: str) -> None:
    install(about, fig2=CARD)
    with pytest.raises(UserError, match=f"paper mine .*{sentence}"):
        cards.group("mine")
    assert names()["nova"] == "Nova" and rehearse("list", "cards", "nova-fig11")[0] == 0


@pytest.mark.parametrize(
    ("name", "package", "why"),
    [
        ("gone", "no_such_package.at_all", "cannot be loaded"),
        ("file", "json.decoder", "no package with a folder"),
        ("my-paper", "json", "a-z, 0-9"),
    ],
)
def test_a_package_that_is_no_paper_is_refused_and_harms_no_card(
    install: Install, monkeypatch: pytest.MonkeyPatch, name: str, package: str, why: str
) -> None:
    monkeypatch.setattr(found, "entry_points", lambda group: [EntryPoint(name, package, "rehearsal.papers")])
    forget()
    with pytest.raises(UserError, match=f"paper {name} of package .*{why}"):
        cards.chosen(name)
    assert cards.chosen("nova-fig11")


def test_two_papers_of_one_name_are_refused(install: Install) -> None:
    install(name="nova")
    with pytest.raises(UserError, match="both papers called 'nova'; rename the entry point"):
        papers()


def test_a_claim_or_a_picture_that_fails_names_its_card(install: Install, tmp_path: Path) -> None:
    claim = "CLAIMS['fig2-none'] = claim('none', times(0.6, within=0.1), lambda panels: {0: 1 / 0})\n"
    install(fig2=CARD + claim, fig3=CARD + "def draw(panels): raise KeyError('no panel')\n")
    claims, pictures = (load_group(serve_cards(tmp_path / each.name, [each])) for each in cards.group("mine"))
    with pytest.raises(UserError, match=r"card mine-fig2, claim fig2-none: ZeroDivisionError.*fig2\.py, line"):
        _ = claims.claims
    with pytest.raises(UserError, match=r"card mine-fig3, draw: KeyError: 'no panel' \(.*fig3\.py, line"):
        write_group_report(pictures)


@pytest.fixture
def page(install: Install, rehearse: Rehearse, tmp_path: Path) -> Path:
    """The new page of the paper `mine`, by its results in the folder `run`."""
    page = install(fig2=CARD) / "page.md"
    serve_cards(tmp_path / "run", cards.group("mine"))
    assert rehearse("page", "mine", "--results", "run")[:2] == (0, f"{page}\n")
    return page


def test_a_page_that_is_written_again_keeps_its_prose_and_gets_the_measured_values(
    page: Path, rehearse: Rehearse
) -> None:
    # The card states 0.6; the scripted servers answer after 0.2 and 0.3 s.
    assert "| fig2 | faster | 0.60 × | 0.67 ×" in page.read_text()
    edited = page.read_text().replace("Mine (2026)", "Much prose.")
    page.write_text(edited.replace("0.67 ×", "0.99 ×"))
    assert rehearse("page", "mine", "--results", "run")[0] == 0
    assert page.read_text() == edited == filled("mine")


def test_a_page_that_names_an_unknown_card_is_refused(page: Path, rehearse: Rehearse) -> None:
    page.write_text(page.read_text().replace("claims fig2", "claims fig3"))
    status, _, err = rehearse("page", "mine", "--results", "run")
    assert status == 2
    assert f"unknown card 'fig3' in {page}. Did you mean 'fig2'?" in err


def test_a_page_is_made_of_whole_runs(install: Install, rehearse: Rehearse, tmp_path: Path) -> None:
    folder = install(fig2=CARD, fig3=CARD)
    (one, other) = cards.group("mine")
    serve_cards(tmp_path / "part", [one])
    assert "part lacks mine-fig3; `rehearse run mine`" in rehearse("page", "mine", "--results", "part")[2]
    small = {"a": other.experiments["a"].model_copy(update={"set": {**other.experiments["a"].set, "p": 1.0}})}
    serve_cards(tmp_path / "quick", [one, replace(other, experiments=small)])
    assert "quick was measured with other settings" in rehearse("page", "mine", "--results", "quick")[2]
    assert not (folder / "page.md").exists()
