"""What a stage learns of the cost of its own steps."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.step_cost import REFIT, StepCost, StepWork


def steps_of(seed: int) -> list[StepWork]:
    """Steps of 1 to 24 requests, each of new tokens and a context."""
    rng = Random(seed)
    sizes = [rng.randint(1, 24) for _ in range(160)]
    return [StepWork.of([(rng.randint(1, 512), rng.randint(0, 8000)) for _ in range(size)]) for size in sizes]


WORKS = st.integers(0, 2**32).map(steps_of)
DECODE = StepWork.of([(1, 100)])
DECODES = [StepWork.of([(1, 100)] * (1 + i % 8)) for i in range(1000)]


def learnt(steps: list[StepWork], seconds: Callable[[StepWork], float]) -> StepCost:
    cost = StepCost()
    for work in steps:
        cost.add(work, seconds(work))
    return cost


def linear(work: StepWork) -> float:
    return 0.005 + 1e-4 * work.requests + 2e-5 * work.prompt + 1e-7 * work.context


@settings(max_examples=25)
@given(WORKS)
def test_linear_costs_are_predicted_within_a_tenth(steps):
    """Of steps unlike each other, as in a run: within a tenth, for each step that was seen."""
    cost = learnt(steps, linear)
    for work in steps[-20:]:
        assert cost.predict(work) == pytest.approx(linear(work), rel=0.1)


@settings(max_examples=25)
@given(WORKS, st.integers(1, 512), st.integers(0, 8000))
def test_more_work_never_costs_less(steps, new: int, context: int):
    cost = learnt(steps, lambda work: 0.01 - 1e-5 * work.requests + 1e-3 / (1 + work.context))
    for work in steps[-5:]:
        more, before = cost.predict(work.plus(new, context)), cost.predict(work)
        assert more is not None and before is not None and more >= before >= 0.0


def test_a_cost_is_predicted_from_the_refit_step_on():
    assert learnt([DECODE] * (REFIT - 1), linear).predict(DECODE) is None
    assert learnt([DECODE] * REFIT, linear).predict(DECODE) == pytest.approx(linear(DECODE))


def test_predictions_follow_a_stage_that_has_become_slower():
    cost = learnt(DECODES[:400], linear)
    for work in DECODES:
        cost.add(work, 2 * linear(work))
    assert cost.predict(DECODES[3]) == pytest.approx(2 * linear(DECODES[3]), rel=0.02)
