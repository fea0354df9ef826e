"""The run's clock, where the adapter reads one by itself: virtual in a replay, else the wall's.

vLLM keeps its own `time`. Its scheduling path has no clock to be given, and needs none here: it reads the time for
log lines and statistics (which are off) and for requests that name no arrival (ours name theirs).
"""

import time
from collections.abc import Callable

_clock: Callable[[], float] = time.monotonic


def now() -> float:
    """Seconds on the run's clock."""
    return _clock()


def use_clock(clock: Callable[[], float]) -> Callable[[], None]:
    """Let the adapter read `clock` (s) from now on; returns what puts the one before it back."""
    global _clock
    before, _clock = _clock, clock

    def restore() -> None:
        global _clock
        _clock = before

    return restore
