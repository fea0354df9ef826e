"""The papers' pages say what their committed claims say, and these are the cards' own."""

import tomllib
from collections import Counter

import pytest
import yaml

from docs.cards import labelled
from docs.claims import README, measured, readme
from harness.by_device import expand
from harness.experiments.experiment import Experiment
from reports.cards.card import figures, group
from reports.cards.papers import papers
from reports.claims.grading import UNEXPLAINED
from reports.claims.mechanism import Mechanism
from reports.cli.contract import check_page
from reports.pages.paper_page import graded, mechanisms

ROOT = README.parent
each_paper = pytest.mark.parametrize("name", measured())
MECHANISMS = [(name, each) for name in measured() for each in mechanisms(name)]


@each_paper
def test_a_page_has_every_claim_as_it_was_measured_with_its_reasons(name: str) -> None:
    check_page(name)


@each_paper
def test_claims_of_one_fact_are_of_one_paper_and_a_fact_of_one_claim_has_no_name(name: str) -> None:
    together = Counter(each.claim.fact or each.claim.id for each in graded(name))
    together = Counter({fact: number for fact, number in together.items() if " " in fact})
    assert all(number > 1 for number in together.values()), together


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


def test_the_readme_has_no_claim_without_an_explanation() -> None:
    assert UNEXPLAINED not in README.read_text()


def test_the_repository_says_how_to_cite_it_and_the_papers() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert yaml.safe_load(text)["version"] == project["version"]
    referred = {card.group: card.reference for card in figures().values() if card.reference}
    numbers = {name: reference.rpartition("arXiv ")[2] for name, reference in referred.items() if "arXiv" in reference}
    assert len(referred) == 5 and len(numbers) == 4
    for name, number in numbers.items():
        assert f"arxiv.org/abs/{number}" in text and f"arXiv {number}" in papers()[name].page.read_text()


def test_cells_of_a_table_are_named_by_their_columns() -> None:
    head = "<thead>\n<tr>\n<th>card</th>\n<th style='x'>the <em>claim</em></th>\n<th></th>\n</tr>\n</thead>\n"
    row = '<tr>\n<td>fig4</td>\n<td style="text-align: right;">a</td>\n<td>b</td>\n</tr>\n'
    page = f"<p>x</p><table>\n{head}<tbody>\n{row}{row}</tbody>\n</table><td>y</td>"
    found = labelled(page)
    assert found.count('<td data-label="card">fig4</td>') == 2
    assert found.count('<td style="text-align: right;" data-label="the claim">a</td>') == 2
    assert "<td>b</td>" in found and found.endswith("<td>y</td>")
