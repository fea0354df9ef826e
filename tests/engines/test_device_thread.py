"""The thread of a real device: in order, with its errors, and gone when it is closed."""

import asyncio
import threading

import pytest

from engines.devices.real import DeviceThread
from tests.waiting import in_a_loop


@in_a_loop
async def test_calls_run_one_after_the_other_in_their_order():
    thread, seen = DeviceThread("device"), []
    results = await asyncio.gather(*(thread.call(seen.append, i) for i in range(20)), thread.call(str, 7))
    names = {await thread.call(lambda _: threading.current_thread().name, None) for _ in range(3)}
    thread.close()
    assert (seen, results[-1], names) == (list(range(20)), "7", {"device"})


@in_a_loop
async def test_an_error_reaches_who_waits_and_the_next_call_runs():
    thread = DeviceThread("device")
    with pytest.raises(ZeroDivisionError):
        await thread.call(lambda x: 1 / x, 0)
    answer = await thread.call(lambda x: 1 / x, 2)
    thread.close()
    assert answer == 0.5


@in_a_loop
async def test_who_no_longer_waits_is_not_told():
    thread, gate = DeviceThread("device"), threading.Event()
    held, left = thread.call(lambda _: gate.wait(), None), thread.call(str, 1)
    left.cancel()
    gate.set()
    assert await held
    assert await thread.call(str, 2) == "2"
    thread.close()


@in_a_loop
async def test_closing_waits_for_what_is_under_way():
    thread, done = DeviceThread("device"), []
    last = [thread.call(done.append, i) for i in range(5)]
    thread.close()
    await asyncio.gather(*last)
    assert done == list(range(5))
