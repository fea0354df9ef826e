"""VTC's policy and metrics, and the rules that every policy and every card keeps."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest

from engines.core.policy import RequestView, StageView
from harness.metrics.from_packages import RunTables
from harness.replays.contract import check_policy
from reports.cli.contract import check_cards, check_page
from vtc.metrics import measure
from vtc.policy import Fair
from workloads.registry import make_trace


def request(id: str, tokens: int = 100, running: bool = False) -> RequestView:
    """Request `a1` is the first one of client a."""
    return RequestView(id, ready_s=float(id[1:]), running=running, prompt_tokens=tokens, tenant=id[0])


def order(policy: Fair, *requests: RequestView) -> list[str]:
    view = StageView("thinker", 0.0, requests, 2048, 256, 1000, 1000, 16, lambda work: None)
    return list(policy.plan(view).order)


def test_clients_take_turns_whatever_they_ask_for() -> None:
    waiting = [request(id) for id in ("a1", "a2", "a3", "b4", "a5", "b6")]
    assert order(Fair(Counter()), *waiting) == ["a1", "b4", "a2", "b6", "a3", "a5"]


def test_tokens_of_an_answer_count_twice_and_a_prompt_once() -> None:
    served = Counter[str]()
    policy = Fair(served)
    order(policy, request("a1"), request("b2"))
    policy.produced("a1", 1, False)
    order(policy, request("a1", running=True), request("b2", running=True))
    policy.produced("b2", 1, True)
    order(policy, request("a1"), request("a3"))
    policy.produced("a1", 10, False)
    assert served == {"a": 100 + 2 * 11, "b": 100 + 2}


def test_replicas_share_the_counters() -> None:
    served = Counter[str]()
    busy, other = Fair(served), Fair(served)
    order(busy, request("a1", running=True))
    assert order(other, request("a2"), request("b3")) == ["b3", "a2"]


def test_a_client_that_was_away_has_no_credit() -> None:
    served = Counter[str]()
    policy = Fair(served)
    order(policy, request("a1", 1000, running=True), request("a2"))
    order(policy, request("a2"), request("b3"), request("b4"))
    assert served["b"] == served["a"] == 1000


def test_its_plans_keep_the_rules() -> None:
    check_policy("vtc")


def test_service_is_counted_by_client_and_its_evenness_is_jains() -> None:
    sent = {"session": [0, 1, 2], "turn": 0}
    requests = pd.DataFrame(sent | {"tenant": ["a", "b", "b"], "input_tokens": [10, 20, 40]})
    came = {"t": [1.0, 2.0, 3.0, 9.0], "kind": ["first_text", "text", "first_text", "first_text"]}
    events = pd.DataFrame(came | {"session": [0, 0, 1, 2], "turn": 0, "value": [1.0, 4.0, 1.0, 1.0]})
    found = measure(RunTables(requests, events, (0.0, 4.0)))
    assert (found["a.service"][0], found["b.service"][0]) == ((10 + 2 * 5) / 4, (20 + 2) / 4)
    assert found["jain"][0] == pytest.approx(42**2 / (2 * (20**2 + 22**2)))


def test_the_clients_come_at_their_rates() -> None:
    trace = make_trace("clients", {"minutes": 2}, 0).columns()
    names, counts = np.unique(trace["tenant"], return_counts=True)
    assert dict(zip(names, counts, strict=True)) == {"light": 180, "heavy": 360}


def test_the_card_and_the_page_keep_the_rules() -> None:
    check_cards("vtc")
    check_page("vtc")
