"""The server's own loop lag, from its scraped histogram."""

import asyncio
import json

import numpy as np
import pandas as pd
import pytest

from engines.endpoint import metrics
from engines.endpoint.metrics import LAG_S
from engines.endpoint.server_stats import Histogram
from harness.clocks.model_clock import ModelClockLoop
from harness.metrics.live import LAG, loop_lag
from harness.request_tables.steady_window import WHOLE, Window


def scraped(lags_s: list[list[float]], begin_s: float = 0.0) -> pd.DataFrame:
    """Polls a second apart. `lags_s`: lags of the loop's timers before each poll, s."""
    histogram, rows = Histogram(LAG_S), []
    for poll, seconds in enumerate(lags_s):
        for lag_s in seconds:
            histogram.add(lag_s)
        t_s, counts = begin_s + poll, np.cumsum(histogram.counts)
        rows += [(t_s, "up", "{}", 1.0), (t_s, "rehearsal_loop_lag_most_seconds", "{}", max(seconds, default=0.0))]
        rows += [
            (t_s, f"{LAG}_bucket", json.dumps({"le": le}), float(count))
            for le, count in zip((*map(str, LAG_S), "+Inf"), counts, strict=True)
        ]
    return pd.DataFrame(rows, columns=["t_s", "name", "labels", "value"])


CALM, STARVED = [0.0004] * 100, [0.24] * 40


@pytest.mark.parametrize(
    ("window", "n", "max_s"),
    [
        (Window(1.0, 3.0), 80, 0.24),  # the polls at 2 and 3 s, of 40 lags each
        (Window(4.0, 4.5), 100, 0.0004),
        (Window(3.5, 60.0), 200, 0.0004),
        (WHOLE, 380, 0.24),  # the first poll has the lags from before the run
    ],
)
def test_the_lags_of_the_window_count(window: Window, n: int, max_s: float):
    lag = loop_lag(scraped([CALM, CALM, STARVED, STARVED, CALM, CALM]), window)
    assert lag is not None
    assert (lag.n, lag.max_s) == (n, max_s)
    assert (0.1 < lag.p99_s <= 0.25) if max_s == 0.24 else lag.p99_s < 0.0006


@pytest.mark.parametrize(
    "polls",
    [
        scraped([]),
        scraped([[0.001] * 100]),  # a single poll
        scraped([[0.001] * 100, []]),  # no timer between two polls
        pd.concat([scraped([[0.001] * 100]), scraped([[0.001] * 10], begin_s=5.0)]),  # a new server
    ],
)
def test_without_two_polls_of_one_server_the_lag_is_unknown(polls: pd.DataFrame):
    assert loop_lag(polls, WHOLE) is None


def test_a_slowed_loop_is_not_late():
    async def largest_s() -> float:
        lag = metrics.LoopLag(10)
        await asyncio.sleep(0.1)
        lag.stop()
        return lag.largest_s(10)

    with asyncio.Runner(loop_factory=lambda: ModelClockLoop(10)) as runner:
        assert runner.run(largest_s()) < 0.5, "by the real clock it would be 0.9 s behind"
