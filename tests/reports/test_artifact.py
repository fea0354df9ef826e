"""A paper's artifact: nothing in it that the run did not measure, and none of a run that is not whole."""

import csv
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from harness.experiments.settings import override
from reports.cards import card as cards
from reports.cards.artifact import KICK_MINUTES, kick, minutes, parts, write_artifact
from reports.cards.group import Group, load_group
from reports.claims.citation import Citation, cff
from reports.claims.claim import as_rows
from reports.tables.plain_tables import csv_of
from tests.reports.figure_card import EXPERIMENTS, figure, serve_cards
from workloads.errors import UserError

ROOT = Path(__file__).parents[2]
PAPER = Citation("On Voices", ("Ada, Ann", "Bell, Bo C."), year=2026, arxiv="2600.00001")


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Group:
    """Two cards, of which the second shares its points with the first."""
    two = [
        figure(citation=PAPER),
        figure("liveserve-twin", experiments={"quiet": EXPERIMENTS["quiet"]}, citation=PAPER),
    ]
    monkeypatch.setattr(cards, "figures", lambda: {each.name: each for each in two})
    return load_group(serve_cards(tmp_path / "run", two))


def test_it_says_of_every_claim_what_the_run_found(group: Group, tmp_path: Path) -> None:
    written = {path.name: path.read_text() for path in write_artifact(group, tmp_path / "out")}
    assert written["expected.csv"] == csv_of(as_rows(group.claims))
    for claim in group.claims:
        assert f"| {claim.claim.published} | {claim.ours}" in written["README.md"]
    assert "Ann Ada, Bo C. Bell (2026), arXiv 2600.00001" in written["README.md"]
    assert "points, up to 3 seeds of each" in written["README.md"]
    (reference,) = yaml.safe_load(written["CITATION.cff"])["references"]
    assert reference["authors"][1] == {"family-names": "Bell", "given-names": "Bo C."}


def test_the_scripts_hold_the_claims_of_the_cards_that_they_run(group: Group, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_artifact(group, out)
    for script, expected in (("kick_the_tyres.sh", "expected_kick.csv"), ("reproduce.sh", "expected.csv")):
        assert subprocess.run(["sh", "-n", out / script], check=False).returncode == 0
        text = (out / script).read_text()
        ran = [line.split()[2] for line in text.splitlines() if line.startswith("rehearse run")]
        held = {row["card"] for row in csv.DictReader((out / expected).open())}
        assert expected in text and (held == set(ran) or ran == ["liveserve"])


def test_tyres_are_kicked_with_the_cheapest_cards(group: Group) -> None:
    found = parts(group)
    assert minutes(group.points) < sum(part.minutes for part in found), "shared points are counted once"
    dear = [type(part)(part.shown, KICK_MINUTES * (1 + index)) for index, part in enumerate(found)]
    assert kick(dear) == dear[:1] == kick(dear[::-1])
    cheap = [type(part)(part.shown, KICK_MINUTES / 2) for part in found]
    assert set(map(id, kick(cheap))) == set(map(id, cheap))


def test_what_is_not_whole_is_refused_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {name: override(each, {"sessions": 4}) for name, each in EXPERIMENTS.items()}
    monkeypatch.setattr(cards, "figures", lambda: {figure().name: figure()})
    cases = {
        "other settings": ([figure(experiments=small)], None),
        "6 points that failed": (
            [figure()],
            lambda point: point.engine == "liveserve" and point.params["p"] == 0,
        ),
    }
    for words, (shown, broken) in cases.items():
        folder = tmp_path / words
        with pytest.raises(UserError, match=rf"{words}.*`rehearse run liveserve`"):
            write_artifact(load_group(serve_cards(folder, shown, *filter(None, [broken]))), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_repository_says_how_to_cite_it() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    papers = [each.citation for each in cards.figures().values() if each.citation is not None]
    assert (ROOT / "CITATION.cff").read_text() == cff(version, tuple(dict.fromkeys(papers)))
