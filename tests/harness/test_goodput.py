"""Goodput: turns of the steady window that meet every target of single turns."""

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from harness.request_tables.steady_window import Window
from harness.slo.goodput import good, goodput_rps, window_of
from harness.slo.targets import parse_targets

TURNS = pd.DataFrame(
    {
        "turn_start_s": [9.0, 10.0, 12.0, 13.0, 14.0, 21.0],
        "turn_end_s": [9.5, 10.5, 12.5, 13.5, 14.5, 21.5],
        "status": ["completed", "completed", "barged_in", "completed", "failed", "completed"],
        "spoken": [True, True, True, False, True, True],
        "audio_ttfp_s": [0.5, 0.501, 0.5, float("nan"), 0.1, 0.1],
        "e2e_s": [2.0, 1.0, float("nan"), 1.001, 1.0, 1.0],
        "max_gap_s": [0.1, 0.1, 0.101, float("nan"), 0.0, 0.0],
    }
)


def record(requests: Any = TURNS, **metrics: float | None) -> Any:
    """A record whose window is 10 to 20 s."""
    values = {"steady_begin": 10.0, "steady_end": 20.0, **metrics}
    return SimpleNamespace(
        metrics={name: {"value": value} for name, value in values.items()},
        has=lambda name: requests is not None,
        table=lambda name: requests,
    )


@pytest.mark.parametrize(
    ("targets", "met"),
    [
        ("ttfp_p90<=500ms", [0, 2, 3]),  # a written reply has no first sound
        ("e2e_p50<=1s", [1, 2]),  # a reply that was cut short has no end
        ("continuity>=90%", [0, 1, 3]),
        ("ttfp_p90<=500ms continuity>=90%", [0, 3]),
        ("completed_rps>=9", [0, 1, 2, 3]),  # no target of single turns
    ],
)
def test_a_turn_is_good_that_meets_every_target_of_single_turns(targets: str, met: list[int]) -> None:
    assert [n for n in range(4) if good(TURNS.iloc[[n]], parse_targets(targets))] == met
    assert good(TURNS.iloc[:4], parse_targets(targets)) == len(met)


def test_goodput_is_of_the_turns_that_ended_in_the_window() -> None:
    targets = parse_targets("completed_rps>=0")
    assert goodput_rps(record(), targets) == 3 / 10
    for without in (record(None), record(steady_end=None), record(steady_end=10.0), record(TURNS[["status"]])):
        assert goodput_rps(without, targets) is None


def test_a_run_that_is_measured_whole_has_all_of_it_for_a_window() -> None:
    assert window_of(record(), 99.0) == Window(10.0, 20.0)
    assert window_of(record(steady_begin=None), 99.0) == window_of(record(steady_end=None), 99.0) == Window(0.0, 99.0)
