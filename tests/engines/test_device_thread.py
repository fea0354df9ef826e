"""The thread of a real device: in order, with its errors, and gone when it is closed."""

import asyncio
import threading

import pytest

from engines.devices.real import DeviceThread
from tests.waiting import in_a_loop


@in_a_loop
async def test_calls_run_in_order_on_one_thread():
    thread, seen = DeviceThread("device"), []
    results = await asyncio.gather(*(thread.call(seen.append, i) for i in range(20)), thread.call(str, 7))
    names = {await thread.call(lambda _: threading.current_thread().name, None) for _ in range(3)}
    thread.close()
    assert (seen, results[-1], names) == (list(range(20)), "7", {"device"})


@in_a_loop
async def test_an_error_reaches_its_caller_and_the_next_call_runs():
    thread = DeviceThread("device")
    with pytest.raises(ZeroDivisionError):
        await thread.call(lambda x: 1 / x, 0)
    answer = await thread.call(lambda x: 1 / x, 2)
    thread.close()
    assert answer == 0.5


@in_a_loop
async def test_a_cancelled_call_does_not_stop_the_next_one():
    thread, gate = DeviceThread("device"), threading.Event()
    held, left = thread.call(lambda _: gate.wait(), None), thread.call(str, 1)
    left.cancel()
    gate.set()
    assert await held
    assert await thread.call(str, 2) == "2"
    thread.close()


@in_a_loop
async def test_closing_waits_for_the_calls_in_progress():
    thread, done = DeviceThread("device"), []
    last = [thread.call(done.append, i) for i in range(5)]
    thread.close()
    await asyncio.gather(*last)
    assert done == list(range(5))
