"""Workload `metronome`: one row per frame, on time whatever happens, with output that varies on three scales."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import starts
from workloads.errors import UserError
from workloads.registry import make_trace, serves
from workloads.statistics.describe import gap_cv, statistics
from workloads.trace import Trace
from workloads.transforms.transform import cut

STEADY = {"run_cv": 0, "session_cv": 0, "frame_cv": 0, "tokens_per_frame": 1000}


def table(trace: Trace, column: str) -> np.ndarray:
    """One row per session, one column per frame; all sessions must be of one length."""
    columns = trace.columns()
    return columns[column][np.lexsort((columns["turn"], columns["session"]))].reshape(len(trace.sessions), -1)


@settings(max_examples=40)
@given(
    sessions=st.integers(1, 20),
    rate=st.sampled_from([0.5, 8.0, 64.0]),
    frame_s=st.sampled_from([0.08, 1.0, 2.0]),
    duration_s=st.integers(50, 90),
    stay_s=st.none() | st.integers(2, 40),
    spacing=st.sampled_from(["constant", "poisson"]),
)
def test_frames_are_due_on_the_beat_and_fill_the_run(
    sessions: int, rate: float, frame_s: float, duration_s: int, stay_s: int | None, spacing: str
) -> None:
    params = {"sessions": sessions, "rate": rate, "frame_s": frame_s, "duration_s": duration_s}
    try:
        trace = make_trace("metronome", params | {"stay_s": stay_s, "spacing": spacing}, 0)
    except UserError as error:
        assert spacing == "poisson" and "holds no frame" in str(error)
        return
    assert serves(trace) == "frames" and len(trace.sessions) == sessions
    for session in trace.sessions:
        begins = np.array([turn.arrival_s for turn in session.turns])
        assert np.allclose(begins, begins[0] + frame_s * np.arange(len(begins)), atol=2e-6)
        assert {turn.audio_s for turn in session.turns} == {frame_s}
        lasts_s = min(duration_s - begins[0], stay_s or np.inf)
        assert -2e-6 <= lasts_s - frame_s * len(begins) < frame_s + 2e-6


def test_sessions_are_offered_at_a_rate() -> None:
    even = make_trace("metronome", {"sessions": 512, "rate": 8, "duration_s": 80}, 0)
    assert np.allclose(np.diff(starts(even)), 1 / 8)
    found = statistics(even)["arrivals"]  # of sessions and not of frames
    assert (found["n"], found["rate_per_s"], found["span_s"]) == (512, pytest.approx(8), pytest.approx(511 / 8))
    params = {"sessions": 2000, "rate": 8, "duration_s": 400, "spacing": "poisson", "stay_s": 4}
    assert gap_cv(starts(make_trace("metronome", params, 0))) == pytest.approx(1, abs=0.1)
    assert serves(cut(even, 0.0, 1.0)) == "frames"


def test_one_factor_of_a_run_scales_all_its_sessions() -> None:
    """One factor a seed: the means of two halves of a run rise and fall as one (spec 5.4)."""
    shape = {"sessions": 400, "rate": 400, "duration_s": 20, "tokens_per_frame": 1000, "session_cv": 0.05}
    runs = np.array([table(make_trace("metronome", shape, seed), "output_tokens").mean(1) for seed in range(50)])
    halves = runs[:, ::2].mean(1), runs[:, 1::2].mean(1)
    assert np.corrcoef(*halves)[0, 1] > 0.999
    assert runs.mean() == pytest.approx(1000, rel=0.1)
    assert np.std(runs.mean(1)) / runs.mean() == pytest.approx(0.25, rel=0.25)


def test_the_factor_of_a_run_scales_input_and_output_tokens_alike() -> None:
    """Fig. 4b's runs differ in all that a frame adds: 26 nominal tokens of 2 s of audio are 26 on average only."""
    shape = {"sessions": 4, "rate": 400, "duration_s": 20, **STEADY, "run_cv": 0.25}
    runs = [make_trace("metronome", shape, seed).columns() for seed in range(40)]
    heard = np.array([run["input_tokens"][0] for run in runs])
    said = np.array([run["output_tokens"][0] for run in runs])
    assert all(len(set(run["input_tokens"])) == 1 for run in runs), "one draw a run"
    assert np.abs(heard / 26 - said / 1000).max() <= 0.5 / 26 + 1e-3
    assert np.std(heard) / heard.mean() == pytest.approx(0.25, rel=0.3)


def test_points_of_a_sweep_take_equal_parts_of_the_run() -> None:
    swept = make_trace("metronome", {"sessions": 6, "sweep": [1, 2, 3], "duration_s": 60, "rate": 8}, 0)
    begins = [session.turns[0].arrival_s or 0.0 for session in swept.sessions]
    assert begins == [0.125, 20.125, 20.25, 40.125, 40.25, 40.375]
    for session, begin_s in zip(swept.sessions, begins, strict=True):
        end_s = (session.turns[-1].arrival_s or 0.0) + 2.0
        assert 20 * (begin_s // 20 + 1) - 2 < end_s <= 20 * (begin_s // 20 + 1)
    with pytest.raises(UserError, match=r"sessions=7 must be the 6 of sweep=\[1, 2, 3\] together"):
        make_trace("metronome", {"sessions": 7, "sweep": [1, 2, 3], "duration_s": 60}, 0)


@pytest.mark.parametrize("name", ["session_cv", "frame_cv"])
def test_sessions_and_frames_differ_by_their_cv(name: str) -> None:
    shape = {"sessions": 1000, "rate": 1000, "duration_s": 61, **STEADY, name: 0.3}
    output = table(make_trace("metronome", shape, 3), "output_tokens")
    over_sessions = np.std(output.mean(1)) / output.mean()
    within = np.mean(np.std(output, axis=1)) / output.mean()
    expected = (0.3, 0) if name == "session_cv" else (0.3 / np.sqrt(output.shape[1]), 0.3)
    assert (over_sessions, within) == pytest.approx(expected, rel=0.1, abs=0.01)


def test_without_spread_every_frame_has_the_mean_and_drift_changes_it_by_the_minute() -> None:
    shape = {"sessions": 3, "duration_s": 130, **STEADY}
    assert set(make_trace("metronome", shape, 0).columns()["output_tokens"]) == {1000}
    falling = table(make_trace("metronome", shape | {"drift": -0.2}, 0), "output_tokens")
    assert falling[:, [0, 30, 60]].tolist() == [[1000, 800, 600]] * 3
    gone = table(make_trace("metronome", shape | {"drift": -0.9}, 0), "output_tokens")
    assert gone.min() == 1


def test_a_longer_run_and_other_material_change_nothing_else() -> None:
    short, long = (make_trace("metronome", {"duration_s": seconds}, 5) for seconds in (62, 124))
    frames = table(short, "output_tokens").shape[1]
    assert np.array_equal(table(short, "output_tokens"), table(long, "output_tokens")[:, :frames])
    assert np.array_equal(table(short, "content"), table(long, "content")[:, :frames])
    same = make_trace("metronome", {"duration_s": 62, "staggered": False}, 5)
    unlike = pd.DataFrame(short.columns()).compare(pd.DataFrame(same.columns()))
    assert set(unlike.columns.get_level_values(0)) == {"content"}
