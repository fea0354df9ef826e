"""Metrics of other packages: made of the request table and of the log, whole or in pieces, under names of their own."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.kinds.turns import TURNS
from harness.metrics import from_packages
from harness.metrics.definitions import OWN_DEFINITIONS, Definition
from harness.metrics.from_packages import PackageMetrics, RunTables
from harness.metrics.vocabulary import definition
from harness.records.measured import RunFacts, metrics_of
from tests.builders import refused, typed_turn
from tests.metrics.event_log import EventLog, steps
from workloads.trace import Trace


def service(run: RunTables) -> dict[str, Any]:
    """Tokens per client, those of a prompt with the first of its reply; and the lengths of prompts."""
    came = run.events.merge(run.requests, on=["session", "turn"])
    tokens = came["value"] + came["input_tokens"].where(came["kind"] == "first_text", 0)
    clients = came["own_client"]
    sums = {f"{client}.got": (float(np.sum(tokens[clients == client])), 1, 0) for client in set(clients)}
    return {"prompt": run.requests["input_tokens"].to_numpy(float)} | sums


def failing(run: RunTables) -> dict[str, Any]:
    return {"got": (1 / len(run.events[:0]), 1, 0)}


def nameless(run: RunTables) -> dict[str, Any]:
    return {"gto": (1.0, 1, 0)}


MEANINGS = {
    "got": Definition("token", "tokens served", "over the run", None),
    "prompt_mean": Definition("token", "Mean prompt", "over requests", None, statistic="mean"),
}
GOOD = PackageMetrics("turns", MEANINGS, service, reads=("first_text", "text"))
FAILING = PackageMetrics("turns", MEANINGS, failing)
NAMELESS = PackageMetrics("turns", MEANINGS, nameless)
TAKEN = PackageMetrics("turns", {"failed": MEANINGS["got"]}, lambda run: {"failed": (0.0, 1, 0)})
OF_FRAMES = PackageMetrics("frames", {}, failing)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Installs packages with these objects of this module."""

    def install(*names: str) -> None:
        entries = [EntryPoint(name, f"{__name__}:{name}", from_packages.GROUP) for name in names]
        monkeypatch.setattr(from_packages, "entry_points", lambda group: entries)
        from_packages.package_metrics.cache_clear()

    known = dict(OWN_DEFINITIONS)
    yield install
    from_packages.package_metrics.cache_clear()
    OWN_DEFINITIONS.clear()
    OWN_DEFINITIONS.update(known)


def measured(in_pieces: bool = False) -> dict[str, Any]:
    """Two clients: a gets 3 tokens to a prompt of 10, b two to a prompt of 20 and one to a prompt of 30."""
    said = [typed_turn(session, arrival_s=session, input_tokens=10 * session + 10) for session in range(3)]
    turns = pd.DataFrame(Trace.from_turns(said).columns()).assign(own_client=["a", "b", "b"])
    log = EventLog()
    for session, tokens in enumerate((3, 2, 1)):
        log.start(session, spoken=False, at=session)
        log.text(*((session + 1.1 + t, 1) for t in range(tokens)), session=session).done(9.0, session)
    events = log.events
    requests = TURNS.requests(turns, events, RunFacts().timing)
    pieces = (events[row : row + 3] for row in range(0, len(events), 3)) if in_pieces else events
    return metrics_of(TURNS, RunFacts(9.0), turns, pieces, steps(), requests, {}, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("in_pieces", [False, True])
def test_metrics_of_a_package_are_made_by_client_and_known_by_name(install: Any, in_pieces: bool) -> None:
    install("GOOD", "OF_FRAMES")
    found = measured(in_pieces)
    assert (found["a.got"].value, found["b.got"].value) == (13, 53)
    assert (found["prompt_mean"].value, found["prompt_mean"].unit) == (20, "token")
    assert definition("b.got") is MEANINGS["got"] and definition("prompt_p90").unit == "token"
    ours = {name: metric for name, metric in found.items() if name.rpartition(".")[2] not in MEANINGS}
    install()
    assert measured() == ours


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("FAILING", "FAILING of rehearsal.metrics fails at a run: ZeroDivisionError: division by zero"),
        ("NAMELESS", "metric gto has no definition"),
        ("TAKEN", "metric failed of TAKEN has the name of one of ours"),
    ],
)
def test_a_mistake_of_a_package_is_refused_by_its_name(install: Any, name: str, words: str) -> None:
    install(name)
    with refused(words):
        measured()
