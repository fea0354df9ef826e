"""The loop of device paced, whose model time follows real time."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.clocks.model_clock import MOST_LAG_S, ModelClockLoop


def run(main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=ModelClockLoop) as runner:
        return runner.run(main)


def undisturbed(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """The result of a run during which the machine never slept so long that model time had to jump."""
    for _ in range(5):
        with asyncio.Runner(loop_factory=ModelClockLoop) as runner:
            result, loop = runner.run(main()), runner.get_loop()
            assert isinstance(loop, ModelClockLoop)
            if not loop.jumps:
                return result
    raise AssertionError("model time jumped in every one of five runs")


def test_a_slowed_loop_takes_as_many_real_seconds():
    async def main() -> float:
        before_s = asyncio.get_running_loop().time()
        await asyncio.sleep(0.02)
        return asyncio.get_running_loop().time() - before_s

    begun_s = time.monotonic()
    with asyncio.Runner(loop_factory=lambda: ModelClockLoop(4)) as runner:
        assert runner.run(main()) >= 0.02
    assert time.monotonic() - begun_s >= 0.08


def test_a_loop_that_falls_far_behind_gives_up_and_says_so():
    async def main() -> tuple[float, int]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ModelClockLoop)
        begin_s = loop.time()
        time.sleep(2 * MOST_LAG_S)
        await asyncio.sleep(0.001)
        return loop.time() - begin_s, loop.jumps

    passed_s, jumps = run(main())
    assert passed_s >= 2 * MOST_LAG_S and jumps == 1


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=20))
def test_timers_run_in_order_at_their_own_times_unless_cancelled(timers: list[tuple[int, bool]]):
    async def main() -> list[tuple[float, int, float]]:
        loop, ran = asyncio.get_running_loop(), []
        begin_s = loop.time()
        for number, (delay_ms, cancelled) in enumerate(timers):
            when = begin_s + delay_ms / 1000
            handle = loop.call_at(when, lambda n=number, w=when: ran.append((w, n, loop.time())))
            if cancelled:
                handle.cancel()
        await asyncio.sleep(0.025)
        return ran

    ran = undisturbed(main)
    due = sorted((delay_ms, n) for n, (delay_ms, cancelled) in enumerate(timers) if not cancelled)
    assert [number for _, number, _ in ran] == [number for _, number in due]
    assert all(at_s == when for when, _, at_s in ran)
