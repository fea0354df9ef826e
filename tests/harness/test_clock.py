"""Virtual time: timers and their order, deadlocks, exceptions and threads."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.clocks.clock import DeadlockError, run
from tests.waiting import in_virtual_time


@given(st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.30000000000000004, 7e8, 1e-9]), max_size=30))
@in_virtual_time
async def test_timers_fire_by_time_and_in_the_order_they_were_made(delays: list[float]):
    loop, fired = asyncio.get_running_loop(), []
    for i, delay in enumerate(delays):
        loop.call_at(delay, lambda i=i: fired.append((loop.time(), i)))
    await asyncio.sleep(1e9)
    assert fired == sorted((delay, i) for i, delay in enumerate(delays))


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
