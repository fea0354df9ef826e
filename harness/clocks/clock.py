"""Clocks for the same coroutines: simulated time that jumps, or the wall clock.

Clients, gateway and engine loops only ever use asyncio (`sleep`, `loop.time()`, `call_at`). `run` executes
them on a :class:`VirtualClockLoop`, whose `time()` is simulated and which jumps to the next timer when nothing is
ready, or on an ordinary event loop. Nothing in a replay reads another clock to decide anything.
"""

import asyncio
import ctypes
import math
import os
from collections.abc import Coroutine
from functools import partial
from heapq import heapify, heappop, heappush
from time import CLOCK_MONOTONIC, monotonic
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")

_BURST = 64  # timers between two looks at the sockets, some 1 ms of sends [chosen]
_LEAD_S = 25e-6  # the alarm is early by what a quick wake takes, and the rest is waited out [measured: P10 of wakes]
_TFD_TIMER_ABSTIME = 1  # sys/timerfd.h
_LIBC = ctypes.CDLL(None, use_errno=True)
HAS_TIMERFD = hasattr(_LIBC, "timerfd_create")


class DeadlockError(RuntimeError):
    """Deadlock in virtual time: nothing is ready or scheduled, yet tasks are pending and would wait for ever."""


class _Timer(asyncio.TimerHandle):
    """A timer without the fields for debugging: replays set about four for every engine step."""

    __slots__ = ()
    _repr = _source_traceback = None

    def __init__(self, when: float, callback: Any, args: tuple[Any, ...]) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = None, ()  # type: ignore[assignment]


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
        self.fired = 0

    def time(self) -> float:
        """Return the simulated seconds since the loop was made."""
        return self._now

    def number(self) -> int:
        """Return the number that a timer made now would get. Of timers due at one instant, lower numbers fire first.
        `fired`: the highest number that has fired at this instant."""
        self._timers_made += 1
        return self._timers_made

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        if context is not None:
            callback = partial(context.run, callback)
        self._timers_made += 1
        timer = _Timer(when, callback, args)
        heappush(self._timers, (when, self._timers_made, timer))
        return timer

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_first_at(self, when: float, callback: Any, *args: Any) -> asyncio.TimerHandle:
        """Schedule the callback at `when`, ahead of every ordinary timer that is due at the same instant."""
        timer = _Timer(when, callback, args)
        heappush(self._timers, (when, 0, timer))
        return timer

    def _run_once(self) -> None:
        """Run ready callbacks; when there are none, jump to the next timer and run it. Return when asked to stop.

        Unlike on an ordinary loop, an exception in a callback ends the run: it must not pass unseen.
        """
        ready, timers = self._ready, self._timers  # type: ignore[attr-defined]
        while not self._stopping:  # type: ignore[attr-defined]
            if ready:
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._context.run(handle._callback, *handle._args)
            elif timers:
                when, number, timer = heappop(timers)
                if not timer._cancelled:
                    if when > self._now:
                        self._now, self.fired = when, number
                    elif when == self._now and number > self.fired:
                        self.fired = number
                    callback, args = timer._callback, timer._args
                    timer._callback, timer._args = None, ()  # who keeps the timer is often what it calls
                    callback(*args)
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
        """Do nothing: this loop never sleeps."""


class Alarm:
    """A timerfd on CLOCK_MONOTONIC: readable from the instant it is set to."""

    def __init__(self) -> None:
        self._fd: int = _LIBC.timerfd_create(CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._spec = (ctypes.c_long * 4)()  # struct itimerspec: interval s, ns; value s, ns

    def fileno(self) -> int:
        return self._fd

    def set(self, at: float) -> None:
        """Ring at this `time.monotonic()` instant: at once if it is past, never if it is inf. Replaces the time set
        before."""
        ns = 0 if at == math.inf else max(1, math.ceil(at * 1e9))  # 0 disarms
        self._spec[2], self._spec[3] = divmod(ns, 1_000_000_000)
        _LIBC.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, self._spec, None)

    def close(self) -> None:
        os.close(self._fd)


class WallClockLoop(uvloop.Loop):
    """uvloop whose time starts at 0.0 s, and whose timers fire on time: uvloop's own wait for whole milliseconds.

    `slower`: real seconds in a second of its time.

    All timers share one heap and one timerfd, set to the earliest of them; where the system has no timerfd, one timer
    of uvloop's. Sockets are served after each `_BURST` of timers. As on any asyncio loop, an exception in a
    callback goes to the loop's exception handler.
    """

    def __init__(self, slower: float = 1.0) -> None:
        super().__init__()
        self._origin, self._slower = monotonic(), slower
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_made = 0
        self._timers_cancelled = 0
        self._armed_for = math.inf
        self._alarm = Alarm() if HAS_TIMERFD else None
        if self._alarm is not None:
            self.add_reader(self._alarm.fileno(), self._run_timers)

    def time(self) -> float:
        """Return the seconds since the loop was made, or since the origin given to `restart`; below 0 before it."""
        return (monotonic() - self._origin) / self._slower

    def restart(self, at: float | None = None, slower: float = 1.0) -> None:
        """Set time to 0.0 s at the `time.monotonic()` instant `at`, default now. No timer may be waiting."""
        assert all(timer.cancelled() for _, _, timer in self._timers), "a timer set before would fire late"
        self._origin, self._slower = monotonic() if at is None else at, slower

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        timer._scheduled = True
        self._timers_made += 1
        heappush(self._timers, (when, self._timers_made, timer))
        if when < self._armed_for:
            self._arm(when)
        return timer

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_first_at(self, when: float, callback: Any, *args: Any) -> asyncio.TimerHandle:
        """Schedule the callback at `when`, as `call_at` does: on the wall clock no two timers are due at once."""
        return self.call_at(when, callback, *args)

    def close(self) -> None:
        if self._alarm is not None and not self.is_closed():
            self.remove_reader(self._alarm.fileno())
            self._alarm.close()
        super().close()
        self._timers.clear()

    def _arm(self, when: float) -> None:
        self._armed_for = when
        if self._alarm is not None:
            self._alarm.set(when * self._slower - _LEAD_S + self._origin)
        elif when < math.inf:
            super().call_later(max(0.0, when - self.time()) * self._slower, self._run_timers)

    def _run_timers(self) -> None:
        timers, now, lead = self._timers, self.time(), _LEAD_S / self._slower
        self._armed_for = -math.inf  # a timer that a callback sets need not move the alarm: it is set below
        burst = _BURST
        try:
            while timers and burst:
                when, _, timer = timers[0]
                if when > now and not timer._cancelled:
                    if when - now > lead:
                        break
                    while when > now:
                        now = self.time()
                heappop(timers)
                timer._scheduled = False
                if timer._cancelled:
                    self._timers_cancelled -= 1
                else:
                    timer._run()
                    burst -= 1
        finally:
            # Setting the alarm also silences it; it rings again at once if more is due.
            self._arm(timers[0][0] if timers else math.inf)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Drop cancelled timers; asyncio's handles call this. Most timeouts are cancelled long before they are due and
        must not pile up."""
        if handle._scheduled:  # type: ignore[attr-defined]
            self._timers_cancelled += 1
            if self._timers_cancelled > _BURST and 2 * self._timers_cancelled > len(self._timers):
                self._timers[:] = [entry for entry in self._timers if not entry[2]._cancelled]
                heapify(self._timers)
                self._timers_cancelled = 0


def run(main: Coroutine[Any, Any, T], *, virtual: bool) -> T:
    """Run `main` to its end in virtual time, or on the wall clock, and return its result."""
    with asyncio.Runner(loop_factory=VirtualClockLoop if virtual else WallClockLoop) as runner:
        return runner.run(main)
