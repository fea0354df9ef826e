"""VTC's policy, and the rules that every card keeps."""

import numpy as np

from engines.core.policy import RequestView, StageView
from reports.cli.contract import check_cards, check_page
from vtc.policy import Fair
from workloads.columns.classes import Slo
from workloads.registry import make_trace


def request(id: str, tokens: int = 100, running: bool = False) -> RequestView:
    """Request `a1` is the first one of client a."""
    return RequestView(id, ready_s=float(id[1:]), slo=Slo(id[0]), running=running, tokens=tokens)


def order(policy: Fair, *requests: RequestView) -> list[str]:
    view = StageView("thinker", 0.0, requests, 2048, 256, 1000, 1000, 16, lambda work: None)
    return list(policy.plan(view).order)


def test_clients_take_turns_whatever_they_ask_for() -> None:
    waiting = [request(id) for id in ("a1", "a2", "a3", "b4", "a5", "b6")]
    assert order(Fair(), *waiting) == ["a1", "b4", "a2", "b6", "a3", "a5"]


def test_tokens_of_an_answer_count_twice_and_a_preempted_request_pays_once() -> None:
    policy = Fair()
    order(policy, request("a1", 100, running=True), request("b2", 100, running=True))
    order(policy, request("a1", 110, running=True), request("b2", 119, running=True))
    waiting = [request(id, 10) for id in ("a3", "b3")]
    assert order(policy, request("a1", 110), *waiting)[0] == "a1"
    assert order(policy, request("a1", 110, running=True), *waiting) == ["a1", "a3", "b3"]


def test_a_client_that_was_away_has_no_credit() -> None:
    policy = Fair()
    order(policy, request("a1", 1000, running=True), request("a2"))
    order(policy, request("a2"), request("b3"), request("b4"))
    assert policy._served["b"] == policy._served["a"] == 1000


def test_the_clients_come_at_their_rates() -> None:
    trace = make_trace("clients", {"minutes": 2}, 0).columns()
    names, counts = np.unique(trace["request_class"], return_counts=True)
    assert dict(zip(names, counts, strict=True)) == {"light": 180, "heavy": 360}


def test_the_card_and_the_page_keep_the_rules() -> None:
    check_cards("vtc")
    check_page("vtc")
