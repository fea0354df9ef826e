"""The wall clock's timers: on time and in order, with sockets and threads between them, and none left behind."""

import asyncio
import gc
import socket
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.clocks import clock
from harness.clocks.clock import WallClockLoop, run
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
async def test_time_can_start_later_and_go_slower(alarm, slower: int):
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
async def test_restart_refuses_while_a_timer_waits_and_accepts_cancelled_ones():
    loop = asyncio.get_running_loop()
    loop.call_later(60, print).cancel()
    ours(loop).restart()
    loop.call_later(60, print)
    with pytest.raises(AssertionError, match="fire late"):
        ours(loop).restart()


@in_a_loop
async def test_an_exception_in_a_timer_goes_to_the_handler_and_the_others_fire(alarm):
    loop, seen = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: seen.append(type(context["exception"])))
    now = loop.time()
    loop.call_at(now + 0.001, lambda: 1 / 0)
    loop.call_at(now + 0.001, seen.append, "after")
    loop.call_at(now + 0.004, seen.append, "later")
    await asyncio.sleep(0.01)
    assert seen == [ZeroDivisionError, "after", "later"]


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
async def test_timers_set_and_cancelled_by_timers(alarm):
    loop, seen = asyncio.get_running_loop(), []
    now = loop.time()
    late = loop.call_at(now + 0.004, seen.append, "cancelled")

    def first():
        late.cancel()
        loop.call_at(now - 1, seen.append, "past")  # due at once, but never before what runs now is over
        loop.call_later(0.002, soon)
        seen.append("first")

    def soon():
        seen.append("soon")
        loop.call_at(max(loop.time(), late.when()) + 0.001, over.set_result, None)

    over = loop.create_future()
    loop.call_at(now + 0.001, first)
    await over
    assert seen == ["first", "past", "soon"]


@in_a_loop
async def test_cancelled_timeouts_do_not_pile_up():
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


@in_a_loop
async def test_what_waits_elsewhere_is_served_while_no_timer_is_set(alarm):
    loop, future = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
    threading.Timer(0.01, lambda: loop.call_soon_threadsafe(future.set_result, 7)).start()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 0.003)
    assert await future == 7
    assert await asyncio.to_thread(threading.get_ident) != threading.get_ident()


def test_closing_gives_the_descriptor_back():
    def open_descriptors():
        with socket.socket() as probe:
            return probe.fileno()

    run(asyncio.sleep(0), virtual=False)
    before = open_descriptors()
    for _ in range(20):
        loop = WallClockLoop()
        loop.call_later(60, print)
        loop.close()
        loop.close()
    assert open_descriptors() == before
