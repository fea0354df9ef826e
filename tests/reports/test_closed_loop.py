"""The steady window of a closed loop, and Little's law as a check of it."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.request_tables.steady_window import STEADY, Load, phases, steady_window
from reports.papers.omniinfer.cluster import ClosedLoop, closed_loop


def loop(in_flight: int, lengths_s: np.ndarray, fill_s: float = 0.0) -> pd.DataFrame:
    """A request table of seats, each of which takes the next request when its last has ended; the first come one by one
    within `fill_s`."""
    free_s = np.linspace(0.0, fill_s, in_flight)
    start_s = np.empty_like(lengths_s)
    for number, length_s in enumerate(lengths_s):
        seat = int(free_s.argmin())
        start_s[number] = free_s[seat]
        free_s[seat] += length_s
    end_s = start_s + lengths_s
    turns = {"session": np.arange(len(lengths_s)), "turn": 0, "status": "completed", "turn_start_s": start_s}
    ends = {"turn_end_s": start_s, "completion_s": end_s, "ended_s": end_s, "e2e_s": lengths_s}
    tokens = {"ttft_s": 0.1 * lengths_s, "tbt_mean_s": 0.05, "generated_entry": np.round(lengths_s / 0.05)}
    return pd.DataFrame(turns | ends | tokens)


def measure(in_flight: int, table: pd.DataFrame) -> ClosedLoop | None:
    turns: Any = table[["session", "turn"]]
    window = steady_window(table, turns, Load(slots=in_flight))
    span = None if window.whole else (window.begin_s, window.end_s)
    return closed_loop(table, table.loc[phases(table, window) == STEADY], span)


def measured(in_flight: int, table: pd.DataFrame) -> ClosedLoop:
    found = measure(in_flight, table)
    assert found is not None
    return found


def test_requests_of_one_length_are_counted_exactly():
    """48 at once of 10 s each: 4.8 a second, so 288 a minute."""
    lengths = np.full(4800, 10.0)
    lengths[:48] = np.linspace(0.1, 10.0, 48)  # or they would all end at the same instants
    found = measured(48, loop(48, lengths))
    assert (found.qpm, found.in_flight, found.per_two_nodes(10)) == pytest.approx((288, 48, 57.6), rel=0.01)
    assert found.ttft_mean_s == pytest.approx(1.0) and found.tpot_p99_s == pytest.approx(0.05)


def test_the_law_shows_a_window_that_is_not_steady():
    """Lengths that grow: requests that come early in the window last less long than requests that end in it."""
    found = measured(100, loop(100, np.geomspace(1.0, 400.0, 1000)))
    assert found.littles_law < 0.95 * found.in_flight


def test_requests_that_end_as_the_load_falls_do_not_count():
    """A time per token that grows with the requests in flight: the window has its full value."""
    lengths = np.random.default_rng(0).lognormal(2.0, 0.5, 1000)
    table = loop(200, lengths, fill_s=lengths.mean())
    ends = np.sort(table["completion_s"])
    left = 1 - (table["completion_s"] > ends[-200]) * 0.5
    found = measured(200, table.assign(e2e_s=table["e2e_s"] * left, tbt_mean_s=0.05 * left))
    assert found.tpot_mean_s == pytest.approx(0.05, rel=0.01)
    assert found.littles_law == pytest.approx(found.in_flight, rel=0.04)


def test_a_run_without_a_steady_part_has_none():
    assert measure(10, loop(10, np.full(10, 5.0))) is None
    table = loop(10, np.linspace(4.0, 6.0, 40))
    assert measure(10, table) is not None and measure(10, table.assign(status="failed")) is None
