"""The steady window of a closed loop, and Little's law as a check of it."""

import numpy as np
import pandas as pd
import pytest

from harness.request_tables.steady_window import STEADY, Load, phases, steady_window
from reports.papers.omniinfer.cluster import ClosedLoop, closed_loop


def loop(in_flight: int, requests: int, lengths_s: np.ndarray, fill_s: float = 0.0) -> pd.DataFrame:
    """A request table of seats, each of which takes the next request when its last has ended; the first come one by one
    within `fill_s`."""
    free_s = np.linspace(0.0, fill_s, in_flight)
    rows = []
    for number, length_s in enumerate(lengths_s[:requests]):
        seat = int(free_s.argmin())
        rows.append((number, free_s[seat], free_s[seat] + length_s, length_s))
        free_s[seat] += length_s
    session, start, end, e2e = np.array(rows).T
    return pd.DataFrame(
        {
            "session": session.astype(int),
            "turn": 0,
            "status": "completed",
            "turn_start_s": start,
            "turn_end_s": start,
            "completion_s": end,
            "ended_s": end,
            "e2e_s": e2e,
            "ttft_s": 0.1 * e2e,
            "tbt_mean_s": 0.05,
            "generated_entry": np.round(e2e / 0.05),
        }
    )


def measure(in_flight: int, table: pd.DataFrame) -> ClosedLoop | None:
    window = steady_window(table, table[["session", "turn"]], Load(slots=in_flight))
    span = None if window.whole else (window.begin_s, window.end_s)
    return closed_loop(table, table.loc[phases(table, window) == STEADY], span)


def test_requests_of_one_length_are_counted_exactly():
    """48 at once of 10 s each: 4.8 a second, so 288 a minute."""
    lengths = np.full(4800, 10.0)
    lengths[:48] = np.linspace(0.1, 10.0, 48)  # or they would all end at the same instants
    measured = measure(48, loop(48, 4800, lengths))
    assert measured is not None
    assert measured.qpm == pytest.approx(288, rel=0.01)
    assert measured.in_flight == pytest.approx(48, rel=0.01)
    assert measured.per_two_nodes(10) == pytest.approx(57.6, rel=0.01)
    assert measured.ttft_mean_s == pytest.approx(1.0) and measured.tpot_p99_s == pytest.approx(0.05)


def test_littles_law_holds_for_long_tails():
    lengths = np.random.default_rng(0).lognormal(2.0, 0.5, 20_000)
    measured = measure(200, loop(200, 20_000, lengths))
    assert measured is not None and measured.lengths > 5
    assert measured.littles_law == pytest.approx(200, rel=0.03)
    assert measured.in_flight == pytest.approx(200, rel=0.01)
    assert measured.output_tps == pytest.approx(200 / 0.05, rel=0.03)


def test_the_law_shows_a_window_that_is_not_steady():
    """Lengths that grow: requests that come early in the window last less long than requests that end in it."""
    lengths = np.geomspace(1.0, 400.0, 1000)
    measured = measure(100, loop(100, 1000, lengths))
    assert measured is not None
    assert measured.littles_law < 0.95 * measured.in_flight


def test_requests_that_end_as_the_load_falls_do_not_count():
    """A time per token that grows with the requests in flight: the window has its full value."""
    lengths = np.random.default_rng(0).lognormal(2.0, 0.5, 1000)
    table = loop(200, 1000, lengths, fill_s=lengths.mean())
    ends = np.sort(table["completion_s"])
    left = 1 - (table["completion_s"] > ends[-200]) * 0.5
    table = table.assign(e2e_s=table["e2e_s"] * left, tbt_mean_s=0.05 * left)
    measured = measure(200, table)
    assert measured is not None
    assert measured.tpot_mean_s == pytest.approx(0.05, rel=0.01)
    assert measured.littles_law == pytest.approx(measured.in_flight, rel=0.04)


def test_a_run_without_a_steady_part_has_none():
    assert measure(10, loop(10, 10, np.full(10, 5.0))) is None
    lengths = np.linspace(4.0, 6.0, 40)
    assert measure(10, loop(10, 40, lengths)) is not None
    assert measure(10, loop(10, 40, lengths).assign(status="failed")) is None


def test_requests_that_come_one_by_one_are_measured_as_requests_that_come_at_once():
    """Lengths as OmniInfer's, filled within 0.85 of their mean: the same throughput, and Little's law."""
    lengths = np.random.default_rng(1).lognormal(0.0, 0.47, 60_000)
    cold = measure(3000, loop(3000, 60_000, lengths))
    staggered = measure(3000, loop(3000, 15_000, lengths, 0.85 * lengths.mean()))
    assert cold is not None and staggered is not None and staggered.lengths < 0.25 * cold.lengths
    assert staggered.qpm == pytest.approx(cold.qpm, rel=0.02)
    assert staggered.littles_law == pytest.approx(staggered.in_flight, rel=0.03)
    assert staggered.in_flight == pytest.approx(3000, rel=0.005)
