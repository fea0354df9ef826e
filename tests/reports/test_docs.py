import tomllib

import pytest
import yaml

from docs.claims import README, measured, readme
from harness.by_device import expand
from harness.experiments.experiment import Experiment
from reports.cards.card import figures, group
from reports.cards.papers import papers
from reports.claims.mechanism import Mechanism
from reports.cli.contract import check_page
from reports.pages.paper_page import mechanisms

ROOT = README.parent
each_paper = pytest.mark.parametrize("name", measured())
MECHANISMS = [(name, each) for name in measured() for each in mechanisms(name)]


@each_paper
def test_a_page_has_every_claim_as_it_was_measured_with_its_reasons(name: str) -> None:
    check_page(name)


@pytest.mark.parametrize(("paper", "each"), MECHANISMS, ids=[f"{paper}: {each.name}" for paper, each in MECHANISMS])
def test_a_mechanism_has_a_switch_that_a_run_takes_and_a_test(paper: str, each: Mechanism) -> None:
    if each.missing:
        assert not (each.off or each.instead or each.test)
        return
    file, _, name = each.test.partition("::")
    assert f"def {name}(" in (ROOT / file).read_text()
    assert bool(each.off) != bool(each.instead)
    experiments = [one for card in group(paper) for one in card.experiments.values() if each.engine in one.engines]
    assert experiments, f"no card of {paper} runs {each.engine}"
    data = {**experiments[0].model_dump(), "grid": {}, "seeds": [0], "engines": [each.instead or each.engine]}
    assert expand(Experiment.model_validate({**data, "set": {**data["set"], **each.off}}))


def test_the_table_of_papers_in_the_readme_is_that_of_the_pages() -> None:
    assert README.read_text() == readme(), "run `python -m docs.claims`"


def test_the_repository_says_how_to_cite_it_and_the_papers() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert yaml.safe_load(text)["version"] == project["version"]
    referred = {card.group: card.reference for card in figures().values() if card.reference}
    numbers = {name: reference.rpartition("arXiv ")[2] for name, reference in referred.items() if "arXiv" in reference}
    assert len(referred) == 5 and len(numbers) == 4
    for name, number in numbers.items():
        assert f"arxiv.org/abs/{number}" in text and f"arXiv {number}" in papers()[name].page.read_text()
