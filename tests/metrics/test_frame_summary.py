"""Metrics of a run of interaction sessions."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.metrics.frames import FRAME_DEFINITIONS, summarise_frames
from harness.metrics.vocabulary import definition
from harness.request_tables.frame_table import frame_table
from tests.metrics.frame_log import BEAT, FAST_S, NETWORK_S, Answer, add, events_of, steps_of, trace_of

FRAMES = 149
SECONDS = np.arange(0.5, 302, 0.5)
FILLING = steps_of(SECONDS, np.minimum(SECONDS / 148 * 1000, 1000))


def summary(events: pd.DataFrame, trace: pd.DataFrame, steps: pd.DataFrame = FILLING, end_s: float = 304.0):
    return summarise_frames(frame_table(events, trace, BEAT), steps, events, end_s, BEAT)


def numbers(answer: Answer, steps: pd.DataFrame = FILLING, sessions: int = 8) -> dict[str, float | None]:
    trace = trace_of(sessions, FRAMES)
    return {name: m.value for name, m in summary(events_of(trace, answer), trace, steps).items()}


LATENCIES = {
    "frame_latency_p50": (FAST_S, 15, 0), "frame_latency_p90": (0.7, 15, 0), "frame_latency_p99": (2.248, 15, 0),
    "frame_latency_max": (2.5, 15, 0), "first_frame_latency_p50": (0.5, 3, 0), "first_frame_latency_p90": (0.5, 3, 0),
    "first_frame_latency_max": (0.5, 3, 0), "steady_latency_p50": (FAST_S, 12, 0), "steady_latency_p90": (0.7, 12, 0),
    "steady_latency_p99": (2.302, 12, 0), "deadline_misses": (1, 18, 0),
}  # fmt: skip
"""Of 6 frames of 3 sessions: the first take 0.5 s, the third 0.7 s, one 2.5 s, the others FAST_S."""
EXPECTED = {
    "frames_with_speech": (9 / 12, 12, 0), "cadence_nonempty": (8 / 12, 12, 0), "on_time": (11 / 12, 12, 0),
    "jitter_p99": (2.262, 14, 0), "frames": (18, 18, 0), "empty_frames": (3, 12, 0),
    "silent_sessions_peak": (1, 8, 0), "silent_sessions_end": (0, 8, 0), **LATENCIES, "wall": (0, 18, 0),
    "wall_s": (None, 18, 0), "hard_stall": (0, 8, 0), "progressive_silence": (0, 8, 0), "pool_peak": (0.48, 13, 0),
    "pool_end": (0.48, 13, 0), "pool_plateau": (0.4, 13, 0), "pool_slope": (0.04, 13, 0),
    "pool_per_session": (0.4 / 3, 5, 0), "saturation_predicted_s": (25, 13, 0), "saturation_measured_s": (10, 13, 0),
    "saturation_error": (1.5, 13, 0), "ticks": (6, 6, 0), "tick_overruns": (1, 7, 0), "capped_ticks": (1, 6, 0),
    "offered": (5, 5, 0), "admitted": (3, 5, 1), "shed": (1, 5, 1), "failed_sessions": (0, 3, 0), "cap_end": (28, 2, 0),
    "touch_s": (8, 6, 0), "touch_admitted": (3, 6, 0), "preemptions": (1, 13, 0), "recycles": (2, 13, 0),
    "reencoded_tokens": (70, 2, 0), "max_len_hits": (1, 13, 0), "engine_busy": (13 * 0.004 / 16, 13, 0),
    "generated_tokens": (180, 18, 0), "makespan": (16 - 1 / 128, 5, 0),
}  # fmt: skip
"""Value, n and missing of each metric: of 5 sessions one is rejected and one has no answer; one falls silent."""


def test_every_metric_has_its_value_its_n_what_is_missing_and_its_unit() -> None:
    def answer(session: int, frame: int, at_s: float) -> tuple[float, float]:
        latency_s = 2.5 if (session, frame) == (2, 4) else {0: 0.5, 2: 0.7}.get(frame, FAST_S)
        return latency_s, 0 if session == 1 and frame > 2 else 12

    starts = [(0.1, "session_start", 3, 0, np.nan), (0.1, "shed", 3, 0, np.nan), (0.2, "session_start", 4, 0, np.nan)]
    refusals = [(9.0, "alloc_fail", 0, 0, 1.0), (10.0, "alloc_fail", 0, 0, 0.0)]  # of a running request, of a waiting
    recycles = [(7.0, "recycle", 0, 0, 30.0), (9.0, "recycle", 1, 0, 40.0)]
    others = [(8.1, "tick_skipped", -1, 9, np.nan), (7.0, "preempt", 0, 0, np.nan), (11.0, "max_len", 1, 0, np.nan)]
    caps = [(4.7, "cap", -1, 1, 32.0), (6.0, "cap", -1, 2, 28.0)]
    trace = trace_of(3, 6)
    events = add(events_of(trace, answer), *starts, *refusals, *recycles, *others, *caps)
    metrics = summary(events, trace, steps_of(np.arange(1, 14), np.arange(1, 14) * 40), end_s=16)
    assert list(metrics) == list(FRAME_DEFINITIONS) == list(EXPECTED)
    for name, (value, n, missing) in EXPECTED.items():
        found = metrics[name]
        assert (found.value, found.n, found.missing) == (pytest.approx(value), n, missing), name
        assert found.unit == definition(name).unit, name


def test_a_collapse_is_green_on_the_dashboard_and_mute_for_the_user() -> None:
    """Metronome, section 3: the stalled engine returns empty frames on time."""

    def answer(session: int, frame: int, at_s: float) -> tuple[float, float]:
        return (FAST_S, 12) if at_s < 148 else (1.6, 0)

    steps = FILLING.loc[FILLING["t_s"] < 148]
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


@pytest.mark.parametrize(("begun_s", "lasted_s", "touch_s"), [(1.9, 1.5, None), (2.0, 0.61, 2.0), (2.0, 0.59, None)])
def test_the_touch_of_admissions_target_is_after_2_s_and_at_0_3_b(
    begun_s: float, lasted_s: float, touch_s: float | None
) -> None:
    events = add(
        events_of(trace_of(200, 5)), (begun_s, "tick", -1, 0, 1.0), (begun_s + lasted_s, "tick_end", -1, 0, 0.0)
    )
    metrics = summary(events, trace_of(200, 5), end_s=20)
    came = sum(session / 64 + 1 / 128 + 2 * NETWORK_S <= begun_s + lasted_s for session in range(200))
    assert (metrics["touch_s"].value, metrics["touch_admitted"].value) == (touch_s, came if touch_s else None)


@settings(max_examples=30)
@given(offered=st.integers(1, 12), data=st.data())
def test_shed_and_admitted_are_the_offered(offered: int, data: st.DataObject) -> None:
    shed = data.draw(st.sets(st.integers(0, offered - 1)))
    trace = trace_of(offered, 4)
    events = events_of(trace)
    events = events.loc[~events["session"].isin([*shed]) | (events["kind"] == "session_start")]
    metrics = summary(add(events, *((0.1, "shed", session, 0, np.nan) for session in shed)), trace)
    values = [metrics[name].value for name in ("offered", "admitted", "shed")]
    assert values == [offered, offered - len(shed), len(shed)]
    assert metrics["frames"].value == 4 * (offered - len(shed))
    twice = add(events, *((0.1, "shed", session, 0, np.nan) for session in range(offered)))
    if len(shed) < offered:
        with pytest.raises(ValueError, match="were let in and"):
            summary(twice, trace)
