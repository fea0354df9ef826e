"""Waiting for what nobody tells, as of another process: it is looked at again and again, and not for ever."""

import asyncio
import functools
import inspect
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import psutil

from harness.clocks import clock
from harness.clocks.clock import WallClockLoop

WITHIN_S = 180.0
"""Far beyond what any of it takes."""
LOOK_S = 0.005


def wait_until(true: Callable[[], Any], within_s: float = WITHIN_S) -> Any:
    """What `true` gives once it is no longer false; AssertionError when that takes longer."""
    limit = time.monotonic() + within_s
    while not (found := true()):
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(LOOK_S)
    return found


async def until(true: Callable[[], Any], within_s: float = WITHIN_S) -> Any:
    """As `wait_until`, beside which the loop goes on; `true` may be a coroutine function. TimeoutError when late."""
    async with asyncio.timeout(within_s):
        while True:
            found = true()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(LOOK_S)


def run(
    main: Coroutine[Any, Any, Any],
    loop: Callable[[], asyncio.AbstractEventLoop] = WallClockLoop,
    within_s: float = WITHIN_S,
) -> Any:
    """What it returns, on a loop of ours; CancelledError where it takes longer. The limit is no timer of the loop: a
    test may set the loop's clock, which wants none."""
    with asyncio.Runner(loop_factory=loop) as runner:

        async def limited() -> Any:
            going = asyncio.current_task()
            assert going is not None
            limit = threading.Timer(within_s, runner.get_loop().call_soon_threadsafe, [going.cancel])
            limit.start()
            try:
                return await main
            finally:
                limit.cancel()

        return runner.run(limited())


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]], play: Callable[..., Any] = run) -> Callable[..., None]:
    """The test, run as a coroutine by `play`."""

    @functools.wraps(test)
    def started(*args: Any, **named: Any) -> None:
        play(test(*args, **named))

    return started


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test, run as a coroutine on the virtual clock."""
    return in_a_loop(test, functools.partial(clock.run, virtual=True))


def runs(pid: int) -> bool:
    """Whether the process is there and has not ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
