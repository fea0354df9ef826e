"""The numbers of a run of interaction sessions: a dashboard's beside the user's."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.metrics.frames import FRAME_DEFINITIONS, summarise_frames
from harness.metrics.turns import DEFINITIONS
from harness.metrics.vocabulary import definition
from harness.request_tables.frame_table import frame_table
from tests.metrics.frame_log import BEAT, FAST_S, Answer, B, add, events_of, spoke, steps_of, trace_of

FRAMES = 149
SECONDS = np.arange(0.5, 302, 0.5)
FILLING = steps_of(SECONDS, np.minimum(SECONDS / 148 * 1000, 1000))


def summary(events: pd.DataFrame, trace: pd.DataFrame, steps: pd.DataFrame = FILLING, end_s: float = 304.0):
    return summarise_frames(frame_table(events, trace, BEAT), steps, events, end_s, BEAT)


def numbers(answer: Answer, steps: pd.DataFrame = FILLING, sessions: int = 8) -> dict[str, float | None]:
    trace = trace_of(sessions, FRAMES)
    return {name: m.value for name, m in summary(events_of(trace, answer), trace, steps).items()}


def test_every_metric_is_there_with_its_unit() -> None:
    trace = trace_of(2, 10)
    metrics = summary(events_of(trace), trace)
    assert list(metrics) == list(FRAME_DEFINITIONS)
    for name, metric in metrics.items():
        assert metric.unit == definition(name).unit and metric.n >= 0 and metric.missing >= 0
    assert definition("audio_ttfp_p50") is DEFINITIONS["audio_ttfp_p50"]


def test_a_collapse_is_green_on_the_dashboard_and_mute_for_the_user() -> None:
    """Metronome, section 3: the stalled engine returns empty frames on time."""

    def answer(session: int, frame: int, at_s: float) -> tuple[float, float]:
        return (FAST_S, 12) if at_s < 148 else (1.6, 0)

    steps = FILLING[FILLING["t_s"] < 148]
    found = numbers(answer, steps)
    assert (found["on_time"], found["deadline_misses"], found["tick_overruns"]) == (1.0, 0, 0)
    assert found["wall"] == found["hard_stall"] == 1 and found["progressive_silence"] == 0
    assert found["wall_s"] == 150  # of the bucket from 140 s only one tick of five is at the wall
    spoken = (147 - 77) / 147  # judged frames are fed at ticks 4 to 150, and 74 to 150 are mute
    assert found["frames_with_speech"] == found["cadence_nonempty"] == pytest.approx(spoken)
    assert found["silent_sessions_peak"] == found["silent_sessions_end"] == 8
    assert found["saturation_predicted_s"] == pytest.approx(148, rel=0.01)
    assert found["saturation_measured_s"] == pytest.approx(148, abs=1.1)
    error = found["saturation_error"]
    assert error is not None and error < 0.01
    assert found["pool_peak"] == found["pool_end"] == pytest.approx(1, abs=0.005)
    assert found["capped_ticks"] == 77 and found["ticks"] == 149


def test_a_healthy_run() -> None:
    plateau = steps_of(SECONDS, np.minimum(SECONDS * 7, 256))
    found = numbers(spoke, plateau)
    assert found["frames_with_speech"] == found["cadence_nonempty"] == found["on_time"] == 1
    assert found["wall"] == found["hard_stall"] == found["progressive_silence"] == found["empty_frames"] == 0
    assert (
        found["wall_s"] is None
        and found["saturation_measured_s"] is None
        and found["saturation_error"] is None
        and found["saturation_predicted_s"] is None
    )
    assert found["pool_plateau"] == pytest.approx(0.256) and found["pool_slope"] == pytest.approx(0)
    assert found["pool_per_session"] == pytest.approx(0.256 / 8)
    assert found["frame_latency_p50"] == pytest.approx(FAST_S)
    assert found["frame_latency_max"] == pytest.approx(FAST_S)
    assert found["jitter_p99"] == pytest.approx(0, abs=1e-9)
    assert found["generated_tokens"] == 8 * FRAMES * 12
    assert found["touch_s"] is None and found["cap_end"] is None
    assert found["engine_busy"] == pytest.approx(len(SECONDS) * 0.004 / 304)


def test_first_steps_have_latencies_of_their_own_and_the_second_half_is_steady() -> None:
    def answer(session: int, frame: int, at_s: float) -> tuple[float, float]:
        return (0.5 if frame == 0 else 0.1 if at_s < 152 else 0.01), 12

    found = numbers(answer)
    assert found["first_frame_latency_p50"] == found["first_frame_latency_max"] == pytest.approx(0.5)
    assert found["frame_latency_max"] == pytest.approx(0.1)
    assert found["steady_latency_p50"] == found["steady_latency_p99"] == pytest.approx(0.01)


def test_latency_beyond_the_budget_is_a_miss_and_late_at_the_client() -> None:
    found = numbers(lambda session, frame, at_s: (2.5 if frame == 100 else FAST_S, 12))
    assert found["deadline_misses"] == 8
    assert found["on_time"] == found["cadence_nonempty"] == pytest.approx(146 / 147)
    assert found["frames_with_speech"] == 1
    assert found["wall"] == 0


def test_the_touch_of_admissions_target() -> None:
    """The first Step after 2 s at 0.3 B, the sessions let in by its return, and the cap at the end."""

    def answer(session: int, frame: int, at_s: float) -> tuple[float, float]:
        return (0.7 if frame == 0 and session >= 100 else FAST_S), 12

    trace = trace_of(200, 5)
    events = add(events_of(trace, answer), (4.7, "cap", -1, 1, 32.0), (6.0, "cap", -1, 2, 28.0))
    metrics = summary(events, trace, end_s=20)
    assert metrics["touch_s"].value == 4.0
    assert metrics["touch_admitted"].value == 200
    assert metrics["cap_end"].value == 28
    assert metrics["saturation_predicted_s"].value is not None


@settings(max_examples=30)
@given(offered=st.integers(1, 12), data=st.data())
def test_shed_and_admitted_are_the_offered(offered: int, data: st.DataObject) -> None:
    shed = data.draw(st.sets(st.integers(0, offered - 1)))
    trace = trace_of(offered, 4)
    events = events_of(trace)
    events = events[~events["session"].isin(shed) | (events["kind"] == "session_start")]
    metrics = summary(add(events, *((0.1, "shed", session, 0, np.nan) for session in shed)), trace)
    values = [metrics[name].value for name in ("offered", "admitted", "shed")]
    assert values == [offered, offered - len(shed), len(shed)]
    assert metrics["frames"].value == 4 * (offered - len(shed))
    twice = add(events, *((0.1, "shed", session, 0, np.nan) for session in range(offered)))
    if len(shed) < offered:
        with pytest.raises(ValueError, match="were let in and"):
            summary(twice, trace)


def test_sessions_that_come_late_leave_no_straight_line_to_fit() -> None:
    trace = trace_of(8, FRAMES)
    events = add(events_of(trace), (11.0, "session_start", 9, 0, np.nan), (11.0, "admitted", 9, 0, np.nan))
    metrics = summary(events, trace)
    assert metrics["saturation_predicted_s"].value is None and metrics["saturation_error"].value is None
    assert metrics["saturation_measured_s"].value is not None


def test_a_run_of_which_nothing_is_known_has_missing_numbers_and_no_zeros_in_their_place() -> None:
    trace = trace_of(1, 1)
    metrics = summary(events_of(trace).iloc[:0], trace, FILLING.iloc[:0], 0.0)
    counts = {name for name, metric in metrics.items() if metric.value is not None}
    assert all(metrics[name].value == 0 for name in counts)
    assert not counts & {
        "frames_with_speech",
        "wall",
        "on_time",
        "pool_peak",
        "frame_latency_p50",
        "engine_busy",
    }
    assert BEAT.budget_s == B
