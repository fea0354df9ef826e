"""Steps that are as the one before run without the loop's task, and leave what they leave with it."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engines.core.commands import abort_at_layer
from engines.core.engine import StageEngine
from engines.core.policy import Plan, StageView
from engines.core.request import StageRequest
from engines.core.standing import StandingSteps
from engines.core.step_cost import StepWork
from engines.devices.roofline import StepCost
from tests.engines.replica_bench import Bench, play, request

SETTINGS = settings(max_examples=25)


class NewestFirst:
    """Who runs goes before who waits, and of each the newest first; every third time only the first may run. It notes
    what a step is expected to take."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter(asked=0)

    def plan(self, view: StageView) -> Plan:
        self.counters["asked"] += 1
        self.counters["expected_ns"] += round(1e9 * (view.step_s(StepWork(1, 0, 100)) or 0.0))
        order = [
            each.id for each in sorted(view.requests, key=lambda each: (not each.running, -each.ready_s))
        ]
        held = order[1:] if self.counters["asked"] % 3 == 0 else ()
        return Plan([each for each in order if each not in held], frozenset(held))


def served(
    asked: list[tuple[float, int, int]],
    aborts: dict[int, float],
    lazy_steps: bool,
    ordered: bool = False,
    layer: bool = False,
    ahead: bool = False,
    beside: Sequence[float] = (),
) -> tuple[Bench, Counter[str]]:
    """`asked`: when each comes (s), its prompt and its tokens; with its fifth token comes one more. `aborts`: when one
    is cancelled, by its place. `beside`: when somebody else's step of 50 ms comes to the GPU."""
    policy = NewestFirst() if ordered else None
    requests = [request(f"r{i}", i, prompt, tokens) for i, (_, prompt, tokens) in enumerate(asked)]

    async def main() -> Bench:
        arrival = abort_at_layer if layer else None
        bench = Bench(arrival, policy, lazy_steps, max_num_seqs=2, async_scheduling=ahead)

        def answer(each: StageRequest) -> None:
            if each.produced == 5 and each.turn == 0:
                bench.engine.submit(StageRequest(each.name, each.session, 1, each.prompt, 30))

        bench.on_token = answer
        for (at_s, *_), each in zip(asked, requests, strict=True):
            bench.at(at_s, bench.engine.submit, each)
        for place, at_s in aborts.items():
            if place < len(requests):
                bench.at(max(at_s, asked[place][0]), bench.engine.abort, requests[place])
        for at_s in beside:
            bench.at(at_s, bench.engine.replica.device.gpu.compute.submit, StepCost(0.05, 0.0, 0, 0.0))
        await asyncio.sleep(1.0)
        await bench.settle()
        return bench

    return play(main), policy.counters if policy is not None else Counter()


TIMES = st.floats(0.0, 0.4)


@SETTINGS
@given(
    asked=st.lists(
        st.tuples(TIMES, st.sampled_from([8, 40, 200]), st.integers(1, 60)), min_size=1, max_size=7
    ),
    aborts=st.dictionaries(st.integers(0, 6), TIMES, max_size=3),
    how=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    beside=st.lists(TIMES, max_size=6),
)
@example(asked=[(0.0, 8, 60)], aborts={0: 0.05}, how=(False, True, True), beside=[])
@example(asked=[(0.0, 8, 60), (0.09, 8, 5)], aborts={0: 0.03}, how=(False, True, False), beside=[0.012])
def test_whatever_comes_and_goes_leaves_the_same(
    asked: list[tuple[float, int, int]],
    aborts: dict[int, float],
    how: tuple[bool, bool, bool],
    beside: list[float],
):
    lazy, lazy_asked = served(asked, aborts, True, *how, beside)
    plain, plain_asked = served(asked, aborts, False, *how, beside)
    assert lazy.log.events().to_pandas().equals(plain.log.events().to_pandas())
    assert lazy.log.steps().to_pandas().equals(plain.log.steps().to_pandas())
    assert lazy_asked == plain_asked
    assert lazy.engine.steps == plain.engine.steps


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Steps by how they ended."""
    counts: Counter[str] = Counter()
    for name in ("end", "end_as_before"):

        def count(self: Any, *arguments: Any, name: str = name, of: Any = getattr(StageEngine, name)) -> Any:
            counts[name] += 1
            return of(self, *arguments)

        monkeypatch.setattr(StageEngine, name, count)
    return counts


def test_most_steps_of_a_long_reply_are_such(counted: Counter[str]):
    served([(0.0, 40, 200)], {}, lazy_steps=True)
    assert counted["end_as_before"] > 150 and counted.total() == 200
    counted.clear()
    served([(0.0, 40, 200)], {}, lazy_steps=False)
    assert counted["end_as_before"] == 0 and counted.total() == 200


def test_what_fails_in_one_of_them_ends_the_run():
    def fail(each: StageRequest) -> None:
        if each.produced == 100:
            raise ValueError("nobody listens")

    async def main() -> Bench:
        bench = Bench(lazy_steps=True)
        bench.on_token = fail
        bench.engine.submit(request("long", tokens=200))
        await bench.task
        return bench

    with pytest.raises(ValueError, match="nobody listens"):
        play(main)


def test_none_follows_when_nobody_serves_any_more(monkeypatch: pytest.MonkeyPatch):
    begun: list[float] = []
    begin = StandingSteps._begin

    def noted(self: Any, plan: Plan) -> bool:
        begun.append(self._loop.time())
        return begin(self, plan)

    monkeypatch.setattr(StandingSteps, "_begin", noted)

    async def main() -> Bench:
        bench = Bench(lazy_steps=True)
        bench.engine.submit(request("long", tokens=2000))
        await asyncio.sleep(0.5)
        bench.task.cancel()
        await asyncio.sleep(1.0)
        return bench

    bench = play(main)
    assert begun and max(begun) < 0.5
    assert 20 < bench.said()["long"] < 2000


@pytest.mark.parametrize("token", range(2, 40))
def test_who_is_told_of_a_token_may_end_it(token: int):
    """Whatever the step behind it would be."""

    async def main() -> Bench:
        bench = Bench(lazy_steps=True)
        bench.on_token = lambda each: bench.task.cancel() if each.produced == token else None
        bench.engine.submit(request("long", tokens=200))
        await asyncio.sleep(1.0)
        return bench

    bench = play(main)
    assert bench.task.cancelled()
    assert bench.said() == {"long": token}
