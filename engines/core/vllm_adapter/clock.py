"""The run's clock where the adapter reads one: virtual in a replay, else the wall clock.

vLLM keeps its own `time`. Its scheduling path takes no clock and needs none: it reads the time for log lines and
statistics (which are off) and for requests without an arrival time (ours have one).
"""

import time
from collections.abc import Callable

_clock: Callable[[], float] = time.monotonic


def now() -> float:
    """Return seconds on the run's clock."""
    return _clock()


def use_clock(clock: Callable[[], float]) -> Callable[[], None]:
    """Let the adapter read `clock` (s) from now on; returns a function that restores the one before it."""
    global _clock
    before, _clock = _clock, clock

    def restore() -> None:
        global _clock
        _clock = before

    return restore
