"""The timers of the wall clock: in order, never early, and none kept after it is cancelled."""

import asyncio
import gc
import socket
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.clocks import clock
from harness.clocks.clock import WallClockLoop
from tests.waiting import in_a_loop


def ours(loop: asyncio.AbstractEventLoop) -> WallClockLoop:
    assert isinstance(loop, WallClockLoop)
    return loop


@pytest.fixture(params=["timerfd", "uvloop's timers"])
def alarm(request, monkeypatch):
    """The same behaviour where the system has no timerfd."""
    monkeypatch.setattr(clock, "HAS_TIMERFD", request.param == "timerfd")


@settings(max_examples=25)
@given(st.lists(st.sampled_from([-1.0, 0.0, 0.001, 0.0010000001, 0.002, 0.003]), max_size=200))
@in_a_loop
async def test_timers_fire_in_the_order_of_their_times_and_never_early(delays_s: list[float]):
    loop, fired = asyncio.get_running_loop(), []
    begin_s = loop.time() + 0.002

    def fire(number: int, due_s: float) -> None:
        fired.append((number, "early" if loop.time() < due_s else "due"))

    for number, delay_s in enumerate(delays_s):
        loop.call_at(begin_s + delay_s, fire, number, begin_s + delay_s)
    await asyncio.sleep(0.008)  # later than all of them
    # Timers of the same time fire in the order in which they were set: `sorted` keeps it.
    by_time = sorted(range(len(delays_s)), key=lambda number: delays_s[number])
    assert fired == [(number, "due") for number in by_time]


@pytest.mark.parametrize("slower", [1, 4])
@in_a_loop
async def test_time_can_start_later_and_pass_more_slowly(alarm, slower: int):
    loop, at, fired = asyncio.get_running_loop(), time.monotonic() + 0.02, []
    ours(loop).restart(at, slower=slower)
    loop.call_at(0.01, lambda: fired.append(time.monotonic()))
    for _ in range(2):  # before it and after it
        earliest, now, latest = time.monotonic() - at, loop.time(), time.monotonic() - at
        assert earliest / slower - 1e-6 <= now <= latest / slower + 1e-6
        begun = time.monotonic()
        await asyncio.sleep(0.03)
        assert time.monotonic() - begun >= 0.03 * slower
    assert fired[0] >= at + 0.01 * slower


@in_a_loop
async def test_time_cannot_restart_while_a_timer_waits():
    loop = asyncio.get_running_loop()
    loop.call_later(60, print).cancel()
    ours(loop).restart()
    loop.call_later(60, print)
    with pytest.raises(AssertionError, match="fire late"):
        ours(loop).restart()


@in_a_loop
async def test_sockets_are_served_between_bursts_of_due_timers():
    loop, order = asyncio.get_running_loop(), []
    near, far = socket.socketpair()
    near.setblocking(False)
    loop.add_reader(near.fileno(), lambda: (near.recv(10), order.append("socket")))
    now = loop.time()
    for i in range(1000):
        loop.call_at(now, order.append, i)
    far.send(b"x")
    await asyncio.sleep(0.05)
    loop.remove_reader(near.fileno())
    near.close()
    far.close()
    assert [i for i in order if i != "socket"] == list(range(1000))
    assert order.index("socket") < 500


@in_a_loop
async def test_cancelled_timers_are_not_kept():
    loop = asyncio.get_running_loop()
    kept = [loop.call_later(3600, print) for _ in range(50)]
    for _ in range(10_000):
        async with asyncio.timeout(3600):
            pass
    waiting = sum(issubclass(type(each), asyncio.TimerHandle) for each in gc.get_objects())
    for timer in kept:
        timer.cancel()
        timer.cancel()
    assert waiting < 300
