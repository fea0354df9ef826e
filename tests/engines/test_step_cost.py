"""What a stage learns of the cost of its own steps."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.step_cost import REFIT, StepCost, StepWork


def steps_of(seed: int) -> list[list[tuple[int, int]]]:
    """Steps of 1 to 24 requests: (new tokens, context) of each."""
    rng = Random(seed)
    return [[(rng.randint(1, 512), rng.randint(0, 8000)) for _ in range(rng.randint(1, 24))] for _ in range(160)]


WORKS = st.integers(0, 2**32).map(steps_of)


def learnt(requests: list[list[tuple[int, int]]], seconds) -> StepCost:
    cost = StepCost()
    for step in requests:
        work = StepWork.of(step)
        cost.add(work, seconds(work))
    return cost


def linear(work: StepWork) -> float:
    return 0.005 + 1e-4 * work.requests + 2e-5 * work.prompt + 1e-7 * work.context


@settings(max_examples=25)
@given(WORKS)
def test_costs_that_are_linear_in_prompt_and_context_are_found(steps):
    """Of steps unlike each other, as in a run: within a tenth, for each step that was seen."""
    cost = learnt(steps, linear)
    for step in steps[-20:]:
        work = StepWork.of(step)
        assert cost.predict(work) == pytest.approx(linear(work), rel=0.1)


@settings(max_examples=25)
@given(WORKS, st.integers(1, 512), st.integers(0, 8000))
def test_more_work_never_costs_less(steps, new: int, context: int):
    cost = learnt(steps, lambda work: 0.01 - 1e-5 * work.requests + 1e-3 / (1 + work.context))
    for step in steps[-5:]:
        work = StepWork.of(step)
        more, before = cost.predict(work.plus(new, context)), cost.predict(work)
        assert more is not None and before is not None and more >= before >= 0.0


def test_nothing_is_said_before_enough_was_seen():
    work = StepWork.of([(1, 100)])
    assert learnt([[(1, 100)]] * (REFIT - 1), linear).predict(work) is None
    assert learnt([[(1, 100)]] * REFIT, linear).predict(work) == pytest.approx(linear(work))


def test_a_stage_that_has_become_slower_is_believed():
    cost = learnt([[(1, 100)] * (1 + i % 8) for i in range(400)], linear)
    for i in range(1000):
        work = StepWork.of([(1, 100)] * (1 + i % 8))
        cost.add(work, 2 * linear(work))
    work = StepWork.of([(1, 100)] * 4)
    assert cost.predict(work) == pytest.approx(2 * linear(work), rel=0.02)


def test_a_request_more_adds_itself():
    assert StepWork.of([(1, 7), (40, 0)]).plus(1, 9) == StepWork(3, 40, 16)
