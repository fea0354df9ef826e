"""The contract of policies: ours and the one of docs/extend.md keep it, and a fault is named."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.composition import COMPONENTS, Scheduler, register
from engines.core.policy import Plan, RequestView, StageView
from harness.replays.contract import check_plan, check_policy

PAGE = Path(__file__).parents[2] / "docs" / "extend.md"


@pytest.fixture
def scheduler() -> Iterator[Any]:
    """Registers a component under a name."""
    before = dict(COMPONENTS["scheduler"])
    yield lambda name, policy: register(Scheduler(name, "tried", policy=lambda stage, params: policy()))
    COMPONENTS["scheduler"].clear()
    COMPONENTS["scheduler"].update(before)


def test_the_policy_of_the_documentation_keeps_the_contract(scheduler: Any) -> None:
    module: dict[str, Any] = {}
    exec(PAGE.read_text().split("## An order of requests")[1].split("```python\n")[1].split("```")[0], module)
    scheduler("shown", module["EarliestDeadlineFirst"])
    check_policy("shown")


@pytest.mark.parametrize("name", ["conserve", "liveserve"])
def test_policies_of_papers_keep_the_contract(name: str) -> None:
    check_policy(name)


class Order:
    """The order of arrival, with one fault."""

    fault = ""

    def __init__(self) -> None:
        self.counters: Any = {} if self.fault == "counters" else Counter()

    def plan(self, view: StageView) -> Any:
        ids = [request.id for request in view.requests]
        if self.fault == "chance":
            random.shuffle(ids)
        if self.fault == "view":
            view.requests[0].tokens += 1
        return ids if self.fault == "plan" else Plan(order=ids)


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("counters", "counters should be a Counter"),
        ("view", "thinker at .* plan changed its view"),
        ("plan", "but a policy returns a Plan"),
        ("chance", "two runs of one seed differ"),
    ],
)
def test_a_policy_that_breaks_the_contract_is_named(scheduler: Any, fault: str, sentence: str) -> None:
    scheduler("faulty", type("Faulty", (Order,), {"fault": fault}))
    with pytest.raises(AssertionError, match=sentence):
        check_policy("faulty")


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        (Plan(order=["a", "z"]), r"order names \['z'\], which the view does not have"),
        (Plan(order=["a", "a"]), r"order names \['a'\] twice"),
        (Plan(held=frozenset({"z"})), "held names"),
        (Plan(caps={"a": -1}), "a limit of -1 is no number of tokens"),
        (Plan(step_budget=1.5), "a limit of 1.5"),  # type: ignore[arg-type]
        (Plan(wake_s=float("nan")), "wake_s is nan"),
    ],
)
def test_a_wrong_plan_is_named(plan: Plan, sentence: str) -> None:
    view = StageView("thinker", 0.0, [RequestView("a", 0.0)], 2048, 256, 1000, 1000, 16, lambda work: None)
    with pytest.raises(AssertionError, match=sentence):
        check_plan(view, plan)
