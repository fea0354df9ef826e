"""Two clocks for the same coroutines: simulated time that jumps, or the wall clock.

Clients, gateway and engine loops only ever use asyncio (``sleep``, ``loop.time()``, ``call_at``). ``run`` executes
them on a :class:`VirtualClockLoop`, whose ``time()`` is simulated and which jumps to the next timer when nothing is
ready, or on an ordinary event loop. Nothing in a replay reads another clock to decide anything.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from functools import partial
from heapq import heappop, heappush
from time import monotonic
from typing import Any, TypeVar

T = TypeVar("T")


class DeadlockError(RuntimeError):
    """Nothing is ready or scheduled in virtual time, yet tasks are pending: they would wait for ever."""


class _Timer(asyncio.TimerHandle):
    """A timer without what debugging needs: replays set some four of them for every engine step."""

    __slots__ = ()

    def __init__(
        self, when: float, callback: Any, args: tuple[Any, ...], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._loop = loop
        self._cancelled = self._scheduled = False
        self._repr = self._source_traceback = None


class VirtualClockLoop(asyncio.BaseEventLoop):
    """An asyncio loop whose time is simulated: it starts at 0.0 s and moves only from timer to timer.

    The same program gives the same order of events: ready callbacks run first in, first out, and timers due at the
    same instant fire in the order they were made. There are no sockets, threads or signals on this loop.

    Raises:
        DeadlockError: when no callback is ready, no timer is set and the main coroutine has not finished; the message
            names each waiting task and the line it waits at.
    """

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_made = 0

    def time(self) -> float:
        """Simulated seconds since the loop was made."""
        return self._now

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        if context is not None:
            callback = partial(context.run, callback)
        self._timers_made += 1
        timer = _Timer(when, callback, args, self)
        heappush(self._timers, (when, self._timers_made, timer))
        return timer

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """Run what is ready; whenever nothing is, jump to the next timer and run that. Returns when asked to stop.

        Unlike on an ordinary loop, an exception in a callback ends the run: it must not pass unseen.
        """
        ready, timers = self._ready, self._timers  # type: ignore[attr-defined]
        while not self._stopping:  # type: ignore[attr-defined]
            if ready:
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._context.run(handle._callback, *handle._args)
            elif timers:
                when, _, timer = heappop(timers)
                if not timer._cancelled:
                    if when > self._now:
                        self._now = when
                    timer._callback(*timer._args)
            else:
                raise DeadlockError(self._describe_deadlock())

    def _describe_deadlock(self) -> str:
        waiting = []
        for task in sorted(asyncio.all_tasks(self), key=lambda t: t.get_name()):
            stack = task.get_stack(limit=1)
            where = f" at {stack[0].f_code.co_qualname}:{stack[0].f_lineno}" if stack else ""
            waiting.append(task.get_name() + where)
        return f"deadlock at t={self._now:.6f} s: no timer is set and {len(waiting)} tasks wait: {'; '.join(waiting)}"

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        raise RuntimeError("no threads on the virtual clock: the order of events would be theirs")

    def _write_to_self(self) -> None:
        """Nothing to wake: this loop never sleeps."""


class WallClockLoop(asyncio.SelectorEventLoop):
    """An ordinary asyncio loop whose time starts at 0.0 s, and again at ``restart``."""

    def __init__(self) -> None:
        self._origin = monotonic()
        # epoll, the default, waits for whole milliseconds, rounded up: as long as some modelled steps.
        super().__init__(selectors.SelectSelector())

    def time(self) -> float:
        """Seconds since the loop was made or restarted."""
        return monotonic() - self._origin

    def restart(self) -> None:
        """Set the time to 0.0 s: what is measured begins now. No timer may be waiting."""
        assert not self._scheduled, "a timer set before would fire late"  # type: ignore[attr-defined]
        self._origin = monotonic()


def run(main: Coroutine[Any, Any, T], *, virtual: bool) -> T:
    """Run ``main`` to its end in virtual time, or on the wall clock, and return its result."""
    with asyncio.Runner(loop_factory=VirtualClockLoop if virtual else WallClockLoop) as runner:
        return runner.run(main)
