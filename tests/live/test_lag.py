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
from harness.metrics.histogram import quantile
from harness.metrics.live import LAG, LoopLag, loop_lag
from harness.request_tables.steady_window import WHOLE, Window


def scraped(lags_s: list[list[float]], begin_s: float = 0.0) -> pd.DataFrame:
    """Polls a second apart; before each the loop's timers were so late."""
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


def test_a_quantile_of_nothing_is_none_and_beyond_the_last_bound_it_is_that():
    assert quantile((1.0, 2.0), (0, 0, 0), 0.5) is None
    assert quantile((1.0, 2.0), (0, 0, 5), 0.5) == 2.0


def test_only_what_lagged_in_the_window_counts():
    calm, starved = [0.0004] * 100, [0.24] * 40
    polls = scraped([calm, calm, starved, starved, calm, calm])
    lag = loop_lag(polls, Window(1.0, 3.0))
    assert lag is not None and lag.n == 80 and 0.1 < lag.p99_s <= 0.25 and lag.max_s == 0.24
    later = loop_lag(polls, Window(4.0, 4.5))
    assert later is not None and later.p99_s < 0.0006 and later.n == 100
    whole = loop_lag(polls, WHOLE)
    assert whole is not None and whole.n == 380  # what was before the first poll is of no run
    outside = loop_lag(polls, Window(3.5, 60.0))
    assert outside is not None and outside.n == 200
    earlier = loop_lag(scraped([[0.9], [0.001], [0.002]]), WHOLE)
    assert earlier is not None and (earlier.max_s, earlier.n) == (0.002, 2)  # nor is what the first poll told


@pytest.mark.parametrize(
    "polls",
    [
        scraped([]),
        scraped([[0.001] * 100]),  # a single poll
        scraped([[0.001] * 100, []]),  # nothing between two
        pd.concat([scraped([[0.001] * 100]), scraped([[0.001] * 10], begin_s=5.0)]),  # a new server
    ],
)
def test_what_is_not_known_is_none(polls: pd.DataFrame):
    assert loop_lag(polls, WHOLE) is None


def test_a_server_that_tells_only_buckets_has_no_largest():
    polls = scraped([[0.001], [0.003] * 100])
    lag = loop_lag(polls.loc[polls["name"] != "rehearsal_loop_lag_most_seconds"], WHOLE)
    assert lag is not None and lag == LoopLag(lag.p99_s, None, 100)
    assert lag.p99_s == pytest.approx(0.005, rel=0.01)


def test_a_slowed_loop_is_not_late():
    async def largest_s() -> float:
        lag = metrics.LoopLag(10)
        await asyncio.sleep(0.1)
        lag.stop()
        return lag.largest_s(10)

    with asyncio.Runner(loop_factory=lambda: ModelClockLoop(10)) as runner:
        assert runner.run(largest_s()) < 0.5, "by the real clock it would be 0.9 s behind"
