"""`rehearse run --shuffle`: an order that can be read before the run, is run, and stands in every record."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reports.cards.card import figures
from reports.cli.run import order_seed
from tests.conftest import Rehearse
from tests.harness import fakes

pytestmark = pytest.mark.usefixtures("fake_experiment")


def listed(rehearse: Rehearse, *arguments: str) -> list[str]:
    """Ids in the order of a dry run of the four points of fake.yaml."""
    out = rehearse("run", "fake.yaml", "--dry-run", *arguments)[1]
    return [line.split()[0] for line in out.splitlines()[:-1]]


def test_the_order_of_a_dry_run_is_run_and_recorded(rehearse: Rehearse, work: Callable) -> None:
    work(fakes.measure)
    order = listed(rehearse, "--shuffle", "3")
    assert sorted(order) == sorted(listed(rehearse)) and order != listed(rehearse)
    assert rehearse("run", "fake.yaml", "--shuffle", "3", "--jobs", "1")[0] == 0
    manifests = {path.parent.name: json.loads(path.read_text()) for path in Path().glob("results/**/manifest.json")}
    assert sorted(manifests, key=lambda id: manifests[id]["order"]) == order
    assert sorted(manifests, key=lambda id: manifests[id]["started"]) == order
    assert {manifest["order_seed"] for manifest in manifests.values()} == {3}
    # The results are shown as the experiment has them, whatever the order of the runs.
    summary = json.loads(Path("results/fake/summary.json").read_text())
    assert [row["point"] for row in summary] == listed(rehearse)


def test_figures_of_metronome_are_shuffled_unless_told_otherwise() -> None:
    defaults = {figure.group: figure.order_seed for figure in figures().values()}
    assert defaults["metronome"] == 0 and defaults["liveserve"] is None
    for text, default, seed in ((None, 0, 0), (None, None, None), ("7", 0, 7), ("none", 0, None)):
        assert order_seed(text, default) == seed
