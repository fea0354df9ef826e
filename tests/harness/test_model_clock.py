"""Model time in step with real time: what a timer starts begins when it was due, and lag does not add up."""

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


def test_work_between_timers_takes_no_model_time_which_is_never_ahead_of_real_time():
    async def steps() -> tuple[list[float], list[float]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ModelClockLoop)
        begin_s, times, ahead_s = loop.time(), [], []
        for _ in range(20):
            await asyncio.sleep(0.01)
            times.append(loop.time() - begin_s)
            ahead_s.append(loop.time() - loop.real_time())
            ahead_s.append(loop.real_time() - (time.monotonic() - before_the_loop))
            time.sleep(0.002)
        return times, ahead_s

    before_the_loop = time.monotonic()
    times, ahead_s = undisturbed(steps)
    assert [round(t, 9) for t in times] == [round(0.01 * (i + 1), 9) for i in range(20)]
    assert max(ahead_s) <= 0


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


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 12):
        writer.write(data)


def test_sockets_and_threads_are_served_and_starve_no_timer():
    async def main() -> tuple[bool, int]:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        rung = asyncio.Event()
        asyncio.get_running_loop().call_later(0.02, rung.set)
        for _ in range(100_000):
            writer.write(b"x" * 100)
            assert set(await reader.read(1 << 12)) == {ord("x")}
            if rung.is_set():
                break
        writer.close()
        server.close()
        return rung.is_set(), await asyncio.get_running_loop().run_in_executor(None, lambda: 5)

    assert run(main()) == (True, 5)


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
