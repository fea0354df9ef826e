"""Two clocks for the same coroutines: simulated time that jumps, or the wall clock.

Clients, gateway and engine loops only ever use asyncio (``sleep``, ``loop.time()``, ``call_at``). ``run`` executes
them on a :class:`VirtualClockLoop`, whose ``time()`` is simulated and which jumps to the next timer when nothing is
ready, or on an ordinary event loop. Nothing in a replay reads another clock to decide anything.
"""

import asyncio
import heapq
import math
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class DeadlockError(RuntimeError):
    """Nothing is ready or scheduled in virtual time, yet tasks are pending: they would wait for ever."""


class _Timer(asyncio.TimerHandle):
    """A timer that fires in the order it was made when two are due at the same instant."""

    __slots__ = ("_key",)

    def __init__(self, when: float, sequence: int, *args: Any) -> None:
        super().__init__(when, *args)
        self._key = (when, sequence)

    def __lt__(self, other: "_Timer") -> bool:  # type: ignore[override]
        return self._key < other._key


class _JumpSelector:
    """Stands where asyncio waits for sockets; waiting becomes moving the clock to the next timer."""

    def __init__(self, loop: "VirtualClockLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise DeadlockError(self._loop.describe_deadlock())
        if timeout > 0:
            self._loop.jump_to_next_timer()
        return []

    def close(self) -> None:
        pass


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
        self._timers_made = 0
        self._selector = _JumpSelector(self)

    def time(self) -> float:
        """Simulated seconds since the loop was made."""
        return self._now

    def jump_to_next_timer(self) -> None:
        self._now = self._scheduled[0].when()  # type: ignore[attr-defined]
        self._clock_resolution = math.ulp(self._now)  # fire what is due at this very instant and nothing later

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        self._timers_made += 1
        timer = _Timer(when, self._timers_made, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def describe_deadlock(self) -> str:
        waiting = []
        for task in sorted(asyncio.all_tasks(self), key=lambda t: t.get_name()):
            stack = task.get_stack(limit=1)
            where = f" at {stack[0].f_code.co_qualname}:{stack[0].f_lineno}" if stack else ""
            waiting.append(task.get_name() + where)
        return f"deadlock at t={self._now:.6f} s: no timer is set and {len(waiting)} tasks wait: {'; '.join(waiting)}"

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        raise RuntimeError("threads cannot call into the virtual clock: its order of events would be theirs")


def run(main: Coroutine[Any, Any, T], *, virtual: bool) -> T:
    """Run ``main`` to its end in virtual time, or on the wall clock, and return its result."""
    with asyncio.Runner(loop_factory=VirtualClockLoop if virtual else asyncio.new_event_loop) as runner:
        return runner.run(main)
