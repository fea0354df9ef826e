"""Virtual time: it jumps, keeps order, never sleeps, and names who waits when nothing can happen any more."""

import asyncio
import time
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.clocks.clock import DeadlockError, run
from tests.waiting import in_virtual_time


@in_virtual_time
async def test_time_starts_at_zero_and_jumps_to_timers_exactly():
    loop = asyncio.get_running_loop()
    seen = [loop.time()]
    await asyncio.sleep(1e6 / 3)
    seen.append(loop.time())
    await asyncio.sleep(86400 * 30)
    assert [*seen, loop.time()] == [0.0, 1e6 / 3, 1e6 / 3 + 86400 * 30]


@given(st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.30000000000000004, 7e8, 1e-9]), max_size=30))
@in_virtual_time
async def test_timers_fire_by_time_and_in_the_order_they_were_made(delays: list[float]):
    loop, fired = asyncio.get_running_loop(), []
    for i, delay in enumerate(delays):
        loop.call_at(delay, lambda i=i: fired.append((loop.time(), i)))
    await asyncio.sleep(1e9)
    assert fired == sorted((delay, i) for i, delay in enumerate(delays))


@given(st.lists(st.sampled_from([0.1, 0.2, 0.30000000000000004]), max_size=12), st.sampled_from([0.1, 0.2]))
@in_virtual_time
async def test_what_is_to_be_first_passes_timers_that_were_made_earlier(delays: list[float], at_s: float):
    loop: Any = asyncio.get_running_loop()
    fired = []
    for delay in delays:
        loop.call_at(delay, fired.append, delay)
    loop.call_first_at(at_s, fired.append, "first")
    await asyncio.sleep(1)
    earlier = sorted(delay for delay in delays if delay < at_s)
    assert fired == [*earlier, "first", *sorted(delay for delay in delays if delay >= at_s)]


@in_virtual_time
async def test_a_timer_that_has_fired_keeps_nothing():
    class Called:
        def now(self) -> None: ...

    called = Called()
    timer = asyncio.get_running_loop().call_later(1, called.now)
    gone = weakref.ref(called)
    del called
    assert gone() is not None
    await asyncio.sleep(2)
    assert timer.when() == 1 and gone() is None


@in_virtual_time
async def test_cancelled_timers_neither_fire_nor_move_the_clock():
    loop = asyncio.get_running_loop()
    loop.call_later(5, pytest.fail).cancel()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await asyncio.Event().wait()
    await asyncio.sleep(1)
    assert loop.time() == 3.0


def test_deadlock_names_the_waiting_tasks_and_where_they_wait():
    async def wait_for_ever():
        await asyncio.Event().wait()

    async def main():
        await asyncio.create_task(wait_for_ever(), name="session 3")

    with pytest.raises(DeadlockError, match=r"deadlock at t=0\.0.* s.*session 3 at .*wait_for_ever:\d+"):
        run(main(), virtual=True)


def test_an_exception_in_a_callback_ends_the_run():
    async def main():
        asyncio.get_running_loop().call_later(1, lambda: 1 / 0)
        await asyncio.sleep(2)

    with pytest.raises(ZeroDivisionError):
        run(main(), virtual=True)


def test_threads_cannot_enter_virtual_time():
    async def main():
        await asyncio.to_thread(time.sleep, 0)

    with pytest.raises(RuntimeError, match="threads"):
        run(main(), virtual=True)
