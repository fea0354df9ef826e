"""Answers at exact times, and what really happened: what the null server's two kinds of answer share."""

import asyncio
import resource
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

TRUTH = ("read_s", "first_s", "last_s", "packets")


class Truth:
    """The log of requests read and packets written, with their times."""

    def __init__(self) -> None:
        self._rows, self._late = array("d"), array("d")
        self.messages_in = 0

    def packet(self, late_s: float) -> None:
        self._late.append(late_s)

    def answered(self, *row: float) -> None:
        """Add `row` as `TRUTH`."""
        self._rows.extend(row)

    def table(self) -> pa.Table:
        """Return one row per answered request.

        read_s: it had been read whole; first_s, last_s: the kernel got its first and last packet; all in s of
        CLOCK_MONOTONIC. packets: their number.
        """
        rows = np.array(self._rows).reshape(-1, len(TRUTH))
        return pa.table({name: rows[:, i] for i, name in enumerate(TRUTH)})

    def summary(self) -> dict[str, Any]:
        """Return the server's own quality: delay of its packets (s; None without any), and its cost (CPU s)."""
        late, usage = np.array(self._late), resource.getrusage(resource.RUSAGE_SELF)
        return {
            "requests": len(self._rows) // len(TRUTH),
            "messages_in": self.messages_in,
            "packets": len(late),
            "late_p50_s": float(np.percentile(late, 50)) if len(late) else None,
            "late_p99_s": float(np.percentile(late, 99)) if len(late) else None,
            "cpu_s": usage.ru_utime + usage.ru_stime,
        }


class Pace:
    """The pace of answers: the first packet `first_s` after the request was read, one more each `interval_s`."""

    def __init__(self, first_s: float, interval_s: float, packets: int) -> None:
        self.first_s, self.interval_s, self.packets = first_s, interval_s, packets
        self.loop = asyncio.get_running_loop()
        self.truth = Truth()


class Answer:
    """The packets of one answer, each at its absolute time after `read_s`. `write(k)` sends packet k of `packets`."""

    def __init__(self, pace: Pace, read_s: float, packets: int, write: Callable[[int], None]) -> None:
        self._pace, self._read_s, self._packets, self._write = pace, read_s, packets, write
        self._sent = 0
        self._due_s = read_s + pace.first_s
        self._timer = pace.loop.call_at(self._due_s, self._fire)

    @property
    def over(self) -> bool:
        return self._sent == self._packets

    def _fire(self) -> None:
        pace, now, k = self._pace, self._pace.loop.time(), self._sent
        self._write(k)
        pace.truth.packet(now - self._due_s)
        if k == 0:
            self._first_s = now
        self._last_s = now
        self._sent = k + 1
        if k + 1 < self._packets:
            self._due_s += pace.interval_s
            self._timer = pace.loop.call_at(self._due_s, self._fire)
        else:
            pace.truth.answered(self._read_s, self._first_s, now, k + 1)

    def cancel(self) -> None:
        """Send no more; the sent packets are logged."""
        self._timer.cancel()
        if self._sent and not self.over:
            self._pace.truth.answered(self._read_s, self._first_s, self._last_s, self._sent)
        self._packets = self._sent
