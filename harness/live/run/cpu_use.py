"""How much of a machine's processors some processes take."""

import os
import time
from collections.abc import Callable, Sequence

import psutil


class CpuUse:
    """From now on: of the processes that `pids` names, now and when asked, and of the whole machine."""

    def __init__(self, pids: Callable[[], Sequence[int]]) -> None:
        self._pids = pids
        self._begun_s = time.monotonic()
        self._before = self._seconds()
        psutil.cpu_percent()  # the next call tells the mean since this one

    def share(self) -> dict[str, float]:
        """Shares of all cores, 0 to 1: `server`, of the processes; `machine`, of everything that runs."""
        wall_s = (time.monotonic() - self._begun_s) * (os.cpu_count() or 1)
        return {
            "server": (self._seconds() - self._before) / wall_s,
            "machine": psutil.cpu_percent() / 100,
        }

    def _seconds(self) -> float:
        total = 0.0
        for pid in self._pids():
            try:
                times = psutil.Process(pid).cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        return total
