"""Counts the rounds in which a policy's order changed the step that first come, first served would have made."""

from collections import Counter
from typing import Any

import pytest

from engines.core.first_come import matters
from engines.core.policy import Plan, RequestView, StageView
from tests.engines.replica_bench import Bench, played, request

BLOCK = 16


def view(*requests: RequestView, tokens: int = 100, slots: int = 8, free: int = 100) -> StageView[RequestView]:
    return StageView("thinker", 0.0, requests, tokens, slots, free, 200, BLOCK, lambda work: None)


def asked(name: str, ready_s: float, tokens: int = 40, **known: Any) -> RequestView:
    return RequestView(name, ready_s, tokens=tokens, **known)


def decode(name: str, ready_s: float, tokens: int = 33) -> RequestView:
    return asked(name, ready_s, tokens, running=True, computed=tokens - 1, blocks=(tokens - 1) // BLOCK)


A, B, LONG = asked("a", 1.0), asked("b", 2.0), asked("long", 0.0, 400)
HIT = asked("hit", 3.0, 90, hashes=(b"known",) * 5)


@pytest.mark.parametrize(
    ("requests", "plan", "limits", "mattered"),
    [
        ((A, B), Plan(["b", "a"]), {"tokens": 79}, True),
        ((B, A), Plan(["a", "b"]), {"tokens": 60}, False),  # an earlier plan put b before a in the queue
        ((A, B), Plan(["b", "a"]), {"slots": 1}, True),
        ((A, B), Plan(["b", "a"]), {"free": 4}, True),
        ((A, B), Plan(["b", "a"]), {"slots": 2, "tokens": 80, "free": 6}, False),
        ((A, B), Plan(["a"], frozenset({"b"})), {}, True),
        ((decode("r", 0.0), A), Plan(["a", "r"]), {"slots": 1}, False),  # a running request keeps its slot
        ((decode("r", 0.0), decode("s", 1.0)), Plan(["s", "r"]), {"free": 1}, True),
        ((decode("r", 0.0), decode("s", 1.0)), Plan(["s", "r"]), {"free": 2}, False),
        ((A, B), Plan(preempt=["a"]), {}, True),
        ((A, B), Plan(caps={"a": 39}), {}, True),
        ((A, B), Plan(caps={"a": 40}), {}, False),
        ((A, B), Plan(step_budget=79), {}, True),
        ((A, B), Plan(step_budget=80), {}, False),
        ((LONG, A), Plan(["a", "long"]), {}, True),
        ((A, HIT), Plan(["hit", "a"]), {"tokens": 50}, False),  # 80 of its 90 tokens are in the prefix cache
        ((A, HIT), Plan(["hit", "a"]), {"tokens": 45}, True),
    ],
)
def test_a_plan_matters_when_it_changes_the_step(
    requests: tuple[RequestView, ...], plan: Plan, limits: dict[str, int], mattered: bool
) -> None:
    assert matters(view(*requests, **limits), plan, lambda hashes: BLOCK * len(hashes)) == mattered


class NewestFirst:
    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()

    def plan(self, view: StageView) -> Plan:
        return Plan([request.id for request in sorted(view.requests, key=lambda request: -request.ready_s)])


@pytest.mark.parametrize(("slots", "mattered"), [(1, True), (3, False)])
def test_the_counter_holds_rounds_in_which_the_order_mattered(slots: int, mattered: bool) -> None:
    """Requests of 20 tokens come 0.1 ms apart. With one slot the third runs before the second; with three all run."""

    def scenario(bench: Bench) -> None:
        for place in range(3):
            bench.at(0.0001 * place, bench.engine.submit, request(f"r{place}", place, tokens=20))

    bench = played(scenario, policy=NewestFirst(), fast=True, max_num_seqs=slots)
    counted = sum(bench.engine.counters(), Counter())
    assert bool(counted["order_mattered"]) == mattered
    assert counted["planned_rounds"] >= bench.engine.steps - 1
