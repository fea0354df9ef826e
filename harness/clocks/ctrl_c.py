"""Ctrl-C at a moment that suits: never while a process starts, nor while an event loop opens or closes."""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class _Deferred:
    """A pending Ctrl-C, and the call that it causes."""

    came = False

    def __init__(self) -> None:
        self.then: Callable[[], object] = lambda: None

    def __call__(self, *_: object) -> None:
        self.came = True
        self.then()


@contextmanager
def deferred_ctrl_c() -> Iterator[_Deferred]:
    """Raise KeyboardInterrupt at the end of the block for a Ctrl-C inside it. Only the main thread is interrupted."""
    deferred = _Deferred()
    if threading.current_thread() is not threading.main_thread():
        yield deferred
        return
    before = signal.signal(signal.SIGINT, deferred)
    try:
        yield deferred
    finally:
        signal.signal(signal.SIGINT, before)
        if deferred.came:
            signal.raise_signal(signal.SIGINT)


def run_until_ctrl_c(main: Coroutine[Any, Any, T]) -> T:
    """Run as `asyncio.run` does, but ignore Ctrl-C while the loop is opened or closed.

    Otherwise asyncio would warn, after our last sentence, of a lost loop or task.
    """
    with deferred_ctrl_c() as deferred, asyncio.Runner() as runner:

        async def cancelled_by_ctrl_c() -> T:
            loop, task = asyncio.get_running_loop(), asyncio.ensure_future(main)
            deferred.then = lambda: loop.call_soon_threadsafe(task.cancel)
            if deferred.came:
                task.cancel()
            try:
                return await task
            finally:
                deferred.then = lambda: None

        return runner.run(cancelled_by_ctrl_c())
