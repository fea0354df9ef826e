"""Ctrl-C and SIGTERM: how they end a command, and at which moments they wait.

They wait while a process starts and while an event loop opens or closes.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from harness.exit_status import SIGNALLED

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM)
REPEAT_S = 1.0
"""A signal that comes this soon after the first one asks for nothing new: a held key sends many. [chosen]"""
SOON_S = 0.01
"""After which an interrupt that Python has dropped is sent again. [chosen]"""
SHOW_CURSOR = b"\x1b[?25h"
"""Progress bars hide the cursor of a terminal."""


class Stopped(KeyboardInterrupt):
    """A command was interrupted. The message is the sentence for its user."""


@contextmanager
def stopped(sentence: str) -> Iterator[None]:
    """Give an interrupt inside the block this sentence, unless it has one already."""
    try:
        yield
    except Stopped:
        raise
    except KeyboardInterrupt:
        raise Stopped(sentence) from None


class Ending:
    """The handler of the signals that end a command.

    The first signal raises KeyboardInterrupt in the main thread, so that all that was measured is kept; one that Python
    drops is sent again. A second one ends the process at once, and the kernel ends its children. `at_once`: the first
    one does that too, as nothing has to be kept. `number`: the first signal; None: there was none.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.at_once = True
        self._since_s = 0.0
        self._lost = False
        self._dropping = False

    @property
    def status(self) -> int | None:
        """The exit status that shells give to the signal; None: there was no signal."""
        return None if self.number is None else SIGNALLED + self.number

    def install(self) -> None:
        """Handle the signals from now on, also where a shell has this process ignore Ctrl-C."""
        for number in SIGNALS:
            signal.signal(number, self)
        sys.unraisablehook = self._unraisable
        atexit.register(_ignore)  # first, and so called last

    def __call__(self, number: int, _: object) -> None:
        if self._dropping:  # what would be raised here, Python would drop as well
            self._send_again(number)
        elif self.first(number):
            raise KeyboardInterrupt

    def first(self, number: int) -> bool:
        """Count a signal. True for the first; does not return for one that ends the process at once."""
        again = self.number is not None and not self._lost
        self._lost = False
        if self.number is None:
            self.number, self._since_s = number, time.monotonic()
        if self.at_once or (again and time.monotonic() - self._since_s > REPEAT_S):
            self.leave()
        return not again

    def leave(self) -> NoReturn:
        """End the process at once, with the status of the first signal."""
        assert self.number is not None, "a signal came"
        with contextlib.suppress(OSError):
            os.write(2, (SHOW_CURSOR + b"\n" if os.isatty(2) else b"") + b"Stopped.\n")
        os._exit(SIGNALLED + self.number)

    def _unraisable(self, what: Any) -> None:
        """Python drops an interrupt that is raised in a destructor, and the command would go on: send it again."""
        if what.exc_type is None or not issubclass(what.exc_type, KeyboardInterrupt) or not self.number:
            sys.__unraisablehook__(what)
            return
        self._lost = self._dropping = True
        self._send_again(self.number)
        self._dropping = False

    @staticmethod
    def _send_again(number: int) -> None:
        again = threading.Timer(SOON_S, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()


def _ignore() -> None:
    """Python now takes itself apart, and would give the signals back their power to kill."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class _Deferred:
    """Pending signals, and the call that the first one causes."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.then: Callable[[], object] = lambda: None
        self.before: dict[int, Any] = {}

    def __call__(self, number: int, _: object) -> None:
        handler = self.before[number]
        if isinstance(handler, Ending) and not handler.first(number):
            return
        if self.number is None:
            self.number = number
            self.then()

    def raise_(self) -> None:
        """Have the pending signal handled as without this block."""
        assert self.number is not None, "a signal came"
        if isinstance(self.before[self.number], Ending):  # which has counted it already
            raise KeyboardInterrupt
        signal.raise_signal(self.number)


@contextmanager
def deferred_ctrl_c() -> Iterator[_Deferred]:
    """Have a Ctrl-C or a SIGTERM inside the block handled at its end. Only the main thread is interrupted; a signal
    that this process ignores stays ignored."""
    deferred = _Deferred()
    if threading.current_thread() is not threading.main_thread():
        yield deferred
        return
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    deferred.before = {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
    for number in deferred.before:
        signal.signal(number, deferred)
    try:
        yield deferred
    finally:
        for number, handler in deferred.before.items():
            signal.signal(number, handler)
        if deferred.number is not None:
            deferred.raise_()


def run_until_ctrl_c(main: Coroutine[Any, Any, T]) -> T:
    """Run as `asyncio.run` does, but let Ctrl-C and SIGTERM wait while the loop is opened or closed.

    Otherwise asyncio would warn, after our last sentence, of a lost loop or task.
    """
    import asyncio  # not at the top: every command loads this module first

    with deferred_ctrl_c() as deferred, asyncio.Runner() as runner:

        async def cancelled_by_ctrl_c() -> T:
            loop, task = asyncio.get_running_loop(), asyncio.ensure_future(main)
            deferred.then = lambda: loop.call_soon_threadsafe(task.cancel)
            if deferred.number is not None:
                task.cancel()
            try:
                return await task
            finally:
                deferred.then = lambda: None

        return runner.run(cancelled_by_ctrl_c())
