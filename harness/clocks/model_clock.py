"""The wall clock of a process that serves on modelled GPUs. It is a module of its own because it needs epoll, which
Locust's gevent takes out of `selectors`."""

import asyncio
import os
import selectors
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from time import monotonic
from typing import Any

from harness.clocks.clock import Alarm

MOST_LAG_S = 0.25
"""[chosen] a server that is further behind is overloaded, and its clients should see that."""


class PreciseSelector(selectors.EpollSelector):
    """A selector that waits exactly: epoll itself rounds up to whole milliseconds, so a timerfd ends the wait."""

    def __init__(self) -> None:
        super().__init__()
        self._alarm = Alarm()
        self._alarm_key = self.register(self._alarm, selectors.EVENT_READ)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0:
            self._alarm.set(monotonic() + timeout)
            timeout = None
        ready = super().select(timeout)
        if any(key is self._alarm_key for key, _ in ready):
            with suppress(BlockingIOError):  # it was set anew after it had fired
                os.read(self._alarm.fileno(), 8)
            ready = [(key, mask) for key, mask in ready if key is not self._alarm_key]
        return ready

    def close(self) -> None:
        self._alarm.close()
        super().close()


class ModelClockLoop(asyncio.SelectorEventLoop):
    """The wall clock of a process that serves on modelled GPUs: model time, kept in step with real time.

    On an ordinary loop every late timer makes all that follows from it late, and the time that this program's own
    scheduling takes is added to steps whose modelled host time holds it already. Here a timer runs at its time:
    `time()` is when it was due until nothing is left to do, and only then real time again. So the modelled server keeps
    the timeline that it has in virtual time, while what comes from sockets comes at its real time. What leaves is late
    by what this process lags, and lag does not add up. When it grows past `MOST_LAG_S` model time gives up and jumps to
    real time.

    `slower`: real seconds in a second of its time. `lag_s`: how late the last timer ran, s; `most_lag_s`: its maximum
    since it was last set to 0; `jumps`: how often model time gave up.
    """

    def __init__(self, slower: float = 1.0) -> None:
        self._origin, self._slower = monotonic(), slower
        self._now = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_made = 0
        self.lag_s = 0.0
        self.most_lag_s = 0.0
        self.jumps = 0
        super().__init__(PreciseSelector())

    def time(self) -> float:
        """Return model time, in seconds since the loop was made; it never goes back."""
        return self._now

    def real_time(self) -> float:
        """Return real time from the same origin, s: model time without its lag."""
        return (monotonic() - self._origin) / self._slower

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        if context is not None:
            callback = partial(context.run, callback)
        self._timers_made += 1
        timer = asyncio.TimerHandle(when, callback, args, self)
        heappush(self._timers, (when, self._timers_made, timer))
        return timer

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer is skipped when its time comes."""

    def _run_once(self) -> None:
        """Run the ready callbacks. If none is ready, first wait, and take the events of sockets and one due timer."""
        ready, timers = self._ready, self._timers  # type: ignore[attr-defined]
        while timers and timers[0][2]._cancelled:
            heappop(timers)
        idle, timeout = not ready, 0.0
        if idle and not self._stopping:  # type: ignore[attr-defined]
            timeout = max(0.0, timers[0][0] - self.real_time()) * self._slower if timers else None
        events = self._selector.select(timeout)  # type: ignore[attr-defined]
        if idle:
            real_s = self.real_time()
            due = bool(timers) and timers[0][0] <= real_s
            self._now = max(self._now, timers[0][0] if due else real_s)
            self._process_events(events)  # type: ignore[attr-defined]
            if due:
                self._fire(real_s)
        else:
            self._process_events(events)  # type: ignore[attr-defined]
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _fire(self, real_s: float) -> None:
        when, _, timer = heappop(self._timers)
        self.lag_s = real_s - when
        self.most_lag_s = max(self.most_lag_s, self.lag_s)
        if self.lag_s > MOST_LAG_S:
            self.jumps += 1
            self._now = real_s
        timer._run()
