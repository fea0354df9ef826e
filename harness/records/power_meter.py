"""What a machine draws before and during a run: its energy counters, read by a thread of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from types import TracebackType

import pyarrow as pa

from harness.metrics.power import power_metrics
from harness.records.energy_counters import Counter
from harness.records.record import Measurement

IDLE_S = 5.0
"""For which nothing is served before a run, so that what is drawn then can be told apart. [chosen]"""
PERIOD_S = 0.1
"""Between two readings: NVML's count moves about as often. [chosen]"""


class PowerMeter:
    """Reads `counters` while nothing is served (`idle`), and then as a context.

    Leaving the context raises what a counter failed with in between, a UserError. `clock` and `sleep` as `time`'s.
    """

    def __init__(
        self,
        counters: Sequence[Counter],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._counters, self._clock, self._sleep = counters, clock, sleep
        self._readings: list[tuple[float, bool, list[float]]] = []
        self._ended = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="power", daemon=True)

    def idle(self) -> None:
        """Read for `IDLE_S`; nothing may be served meanwhile."""
        end_s = self._clock() + IDLE_S
        self._read(idle=True)
        while self._clock() < end_s:
            self._sleep(PERIOD_S)
            self._read(idle=True)

    def __enter__(self) -> PowerMeter:
        self._read(idle=False)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        if self._failure is not None and kind is None:
            raise self._failure

    def table(self, origin: float) -> pa.Table:
        """Columns t_s (s since `origin` on the meter's clock), counter, joules (since it was opened), idle."""
        rows = [
            (at - origin, counter.name, joules, idle)
            for at, idle, found in self._readings
            for counter, joules in zip(self._counters, found, strict=True)
        ]
        columns = zip(*rows, strict=True) if rows else ([], [], [], [])
        types = (pa.float64(), pa.string(), pa.float64(), pa.bool_())
        names = ("t_s", "counter", "joules", "idle")
        return pa.table(
            {
                name: pa.array(list(found), type)
                for name, found, type in zip(names, columns, types, strict=True)
            }
        )

    def _run(self) -> None:
        try:
            while not self._ended.wait(PERIOD_S):
                self._read(idle=False)
            self._read(idle=False)
        except Exception as error:
            self._failure = error

    def _read(self, idle: bool) -> None:
        joules = [counter.joules() for counter in self._counters]
        self._readings.append((self._clock(), idle, joules))


def add_power(measurement: Measurement, readings: pa.Table, run_end_s: float) -> None:
    """Join a meter's table to what was measured of the same run, and the metrics of it."""
    found = power_metrics(readings.to_pandas(), measurement.requests, run_end_s)
    measurement.metrics.update({name: asdict(metric) for name, metric in found.items()})
    measurement.more["power"] = readings
