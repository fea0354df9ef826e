from dataclasses import replace

import numpy as np
import pytest

from tests.workloads.test_nominal import SPOKEN, later
from workloads.registry import make_trace
from workloads.statistics import describe as arrivals
from workloads.statistics.describe import statistics
from workloads.trace import Trace


def test_dispersion_and_correlation_separate_a_constant_rate_from_bursts() -> None:
    even = np.arange(1000) * 0.5
    assert arrivals.gap_cv(even) == 0
    assert arrivals.dispersion(even, 1) == 0
    assert arrivals.lag_1(even) is None  # nothing varies
    bursts = np.sort(np.concatenate([even * 4 + i * 1e-3 for i in range(10)]))
    assert arrivals.dispersion(bursts, 2) == 0
    assert arrivals.dispersion(bursts, 0.5) == pytest.approx(7.5, rel=0.01)  # 10, 0, 0, 0, 10, ...
    slow_then_fast = np.cumsum([2.0, 1.9] * 200 + [0.1, 0.2] * 200)
    assert (arrivals.lag_1(slow_then_fast) or 0) > 0.9


def test_too_few_times_have_no_statistics() -> None:
    for times in (np.zeros(0), np.array([3.0]), np.array([3.0, 3.0])):
        for measure in (arrivals.rate, arrivals.gap_cv, arrivals.lag_1):
            assert measure(times) is None
    times = np.array([0.0, 1.0, 5.0, 10.0])
    assert arrivals.dispersion(times, 1.01) is None  # nine whole windows in 10 s
    assert arrivals.dispersion(times, 1.0) is not None


def test_statistics_of_speech_count_what_is_drawn_and_what_is_in_time() -> None:
    turns = [
        replace(SPOKEN, barge_in_after_s=4.0),
        later(1, think_s=1.0, audio_s=6.0, barge_in_after_s=11.0),
        later(2, think_s=2.0),
        replace(SPOKEN, session=1, reply_audio_s=None),
    ]
    found = statistics(Trace.from_turns(turns))
    assert (found["sessions"], found["turns"], found["arrivals"]["rate_per_s"]) == (2, 4, None)
    shares = {"p_drawn": 2 / 3, "p_in_time": 1 / 3, "overlap_share": 6 / 12}  # the last of 2 + 6 + 2 + 2 s
    assert {name: found["speech"][name] for name in shares} == pytest.approx(shares)
    assert found["speech"]["synthetic"] is None
    quantities = found["quantities"]
    assert (quantities["think_s"]["n"], quantities["audio_s"]["total"]) == (2, 12)
    assert quantities["turns_per_session"]["mean"] == 2


def test_statistics_say_that_speech_is_synthetic() -> None:
    columns = make_trace("voice", {"sessions": 3}, 0).columns()
    trace = Trace.from_columns(columns, generator="voice", notes=["a", "synthetic speech: no recordings"])
    assert statistics(trace)["speech"]["synthetic"] == "synthetic speech: no recordings"
