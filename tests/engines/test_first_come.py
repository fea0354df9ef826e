"""Counts the rounds in which a policy's order changed the step that first come, first served would have made."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.first_come import matters
from engines.core.policy import Plan, Policy, RequestView, StageView
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


ORDERS: dict[str, Callable[[RequestView], Any]] = {
    "first come": lambda request: (not request.running, request.ready_s, request.id),
    "newest first": lambda request: (-request.ready_s, request.id),
    "shortest first": lambda request: (request.tokens, request.id),
}


class Ordered:
    def __init__(self, order: str) -> None:
        self.counters: Counter[str] = Counter()
        self._key = ORDERS[order]

    def plan(self, view: StageView) -> Plan:
        return Plan([request.id for request in sorted(view.requests, key=self._key)])


def served(arrivals: list[tuple[float, int, int]], policy: Policy | None, limits: dict[str, Any]) -> Bench:
    def scenario(bench: Bench) -> None:
        for place, (at_s, prompt, tokens) in enumerate(arrivals):
            at_s += place * 1e-6  # of requests that come at the same time none is first
            bench.at(at_s, bench.engine.submit, request(f"r{place}", place, prompt, tokens))

    return played(scenario, policy=policy, fast=True, **limits)


def rows(run: Bench) -> list[tuple[object, ...]]:
    """Return the events in an order that does not depend on the order of the requests within a step."""
    events = run.log.events().to_pandas().astype(str)
    return sorted(events.itertuples(index=False, name=None))


ARRIVALS = st.tuples(st.sampled_from([0.01, 0.05, 0.2]), st.integers(1, 200), st.integers(1, 20))


@settings(deadline=None, max_examples=15)
@given(
    st.lists(ARRIVALS, min_size=1, max_size=6),
    st.sampled_from([*ORDERS]),
    st.sampled_from([{}, {"max_num_seqs": 2}, {"max_num_batched_tokens": 64}]),
)
def test_an_order_that_never_mattered_gives_the_run_of_first_come_first_served(
    arrivals: list[tuple[float, int, int]], order: str, limits: dict[str, int]
) -> None:
    ours = served(arrivals, Ordered(order), limits)
    counted = sum(ours.engine.counters(), Counter())
    assert len(ours.finished) == len(arrivals)
    if order == "first come":
        assert not counted["order_mattered"]
    if not counted["order_mattered"]:
        plain = served(arrivals, None, limits)
        assert rows(ours) == rows(plain)
        assert "planned_rounds" not in sum(plain.engine.counters(), Counter())
    assert counted["planned_rounds"] >= ours.engine.steps - 1


def test_a_round_is_counted_in_which_the_last_request_takes_the_place_of_an_earlier_one() -> None:
    """One slot, which r0 takes. r1 and r2 wait for its end."""
    run = served([(0.010, 32, 20), (0.011, 32, 20), (0.012, 32, 20)], Ordered("newest first"), {"max_num_seqs": 1})
    assert sorted(run.finished, key=run.finished.__getitem__) == ["r0", "r2", "r1"]
    assert sum(run.engine.counters(), Counter())["order_mattered"] == 1


def test_a_step_budget_below_one_token_is_one_token() -> None:
    def otherwise(tokens: int) -> bool:
        return matters(view(A, B, tokens=tokens), Plan(step_budget=0), lambda hashes: 0)

    assert not otherwise(tokens=1) and otherwise(tokens=2)
