"""The pool of interaction sessions as it fills, the wall detector, and who is silent behind it."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.metrics.frames import Silence, hard_stall, progressive, silence
from harness.metrics.kv_pool import filling, last_third, occupancy, saturated_s, saturation, slope
from harness.request_tables.frame_table import bucket_latencies, time_of_wall
from tests.metrics.frame_log import BEAT, FAST_S, Answer, B, spoke, steps_of, table_of

FRAMES = 149  # of 300 s


def stalled(since_s: float, until_s: float = np.inf, share: float = 1.0) -> Answer:
    """From then on every Step takes its longest, and this share of the eight sessions gets no text."""

    def answer(session: int, frame: int, at_s: float) -> tuple[float, float]:
        if not since_s <= at_s < until_s:
            return FAST_S, 12
        return 1.6, 0 if session < share * 8 else 12

    return answer


def leaving(session: int, frame: int, at_s: float) -> tuple[float, float]:
    """From 150 s on a session falls silent every 10 s, up to six of them."""
    return (1.6, 0) if at_s > 150 + 10 * session and session < 6 else (FAST_S, 12)


def slow(latency_s: float) -> Answer:
    return lambda session, frame, at_s: (latency_s if at_s > 100 else FAST_S, 0)


@pytest.mark.parametrize(
    ("answer", "wall_s", "silent_peak", "silent_end"),
    [
        pytest.param(spoke, None, 0, 0, id="healthy"),
        pytest.param(stalled(150, share=1 / 8), 150, 1, 1, id="a Step waits for the slowest session"),
        pytest.param(stalled(150, until_s=200), None, 8, 0, id="a flicker that recovers"),
        pytest.param(stalled(290), 290, 8, 8, id="the last bucket alone"),
        pytest.param(leaving, 190, 6, 6, id="from where most sessions are silent on"),
        pytest.param(stalled(300), None, 0, 0, id="one late tick, part of the bucket before"),
        pytest.param(slow(1.51), None, 8, 8, id="below 0.95 of the longest wait"),
        pytest.param(slow(1.53), 102, 8, 8, id="above it"),
    ],
)
def test_a_wall_is_a_step_that_lasts_to_the_end(answer: Answer, wall_s: float, silent_peak: int, silent_end: int):
    table = table_of(8, FRAMES, answer)
    found = silence(table, BEAT)
    assert (time_of_wall(table, BEAT), found.silent.max(), found.at_end) == (wall_s, silent_peak, silent_end)


def test_buckets_are_of_ten_seconds_by_dispatch() -> None:
    buckets = bucket_latencies(table_of(8, FRAMES, stalled(150)))
    assert buckets["t_s"].tolist() == list(range(0, 300, 10))
    assert set(buckets["n"][1:-1]) == {40}
    assert np.allclose(buckets["p50"], [FAST_S] * 15 + [1.6] * 15)


@pytest.mark.parametrize(
    ("mute", "due", "requests", "stalls"),
    [(2, 1, 0, False), (3, 1, 0, True), (4, 1, 0, True), (3, 0, 0, False), (3, 1, 1, False)],
)
def test_three_beats_are_a_hard_stall(mute: int, due: int, requests: int, stalls: bool) -> None:
    """Beats without speech from the third on, and a step of so many requests that begins before and ends in them."""
    spoken = np.array([2, 2] + [0] * mute + [2])
    counts = Silence(np.arange(spoken.size) * B, 0 * spoken, np.where(spoken, 2, due), spoken, 0)
    step = steps_of(np.zeros(1), np.zeros(1), requests=requests).assign(t_s=1.5 * B, dt_s=2 * B)
    assert hard_stall(counts, step, BEAT) == stalls


@pytest.mark.parametrize(
    ("silent", "spoken", "found"),
    [([1, 2, 2, 2], 5, False), ([1, 2, 2, 3], 5, True), ([1, 2, 3, 4], 1, True), ([1, 2, 3, 4], 0, False)],
)
def test_three_beats_with_more_silence_are_progressive(silent: list[int], spoken: int, found: bool) -> None:
    said = np.full(4, spoken)
    assert progressive(Silence(np.arange(4) * B, np.array(silent), said + 1, said, 0)) == found


@settings(max_examples=40)
@given(said=st.lists(st.lists(st.booleans(), min_size=9, max_size=9), min_size=1, max_size=4))
def test_silent_is_three_in_a_row_of_the_same_session(said: list[list[bool]]) -> None:
    table = table_of(len(said), 9, lambda session, frame, at_s: (FAST_S, int(said[session][frame])))
    silent = {
        (session, frame)
        for session, flags in enumerate(said)
        for frame in range(4, 9)
        if not any(flags[frame - 2 : frame + 1])
    }
    found = silence(table, BEAT)
    per_beat = [sum(frame == beat - 2 for _, frame in silent) for beat in range(len(found.silent))]
    assert found.silent.tolist() == per_beat
    assert found.at_end == sum(frame == 7 for _, frame in silent)
    assert found.due.sum() == 7 * len(said)


def test_a_session_that_speaks_only_after_others_left_counts_as_silent_at_the_end() -> None:
    found = silence(table_of(8, FRAMES, stalled(150, until_s=2.0 * (FRAMES + 1))), BEAT)
    assert found.silent[-1] == 0 and found.at_end == 8


NO_FAILS = pd.DataFrame({"t": [], "value": []})


def filled(at_0: float, rate: float) -> pd.Series:
    """A step each 0.1 s for 300 s, with a pool of 10 million blocks that fills on a line."""
    times = np.arange(0, 300.1, 0.1)
    used = np.rint(1e7 * np.minimum(at_0 + rate * times, 1.0)).astype(int)
    return occupancy(steps_of(times, used, 10_000_000), 300)


def test_the_papers_line_is_the_arithmetic_of_equation_1() -> None:
    """N = 128, 55 tokens a frame of 2 s, 32,500 blocks of 16: full after 147.7 s (specification 2.3: 148 s)."""
    rate = 128 * 55 / (2 * 32_500 * 16)
    line = filling(filled(0.0, rate))
    assert line is not None and saturation(line) == pytest.approx(147.7, abs=0.2)


def test_a_pool_is_full_from_0_995_on_or_when_a_waiting_request_is_refused() -> None:
    pool = pd.Series({130.0: 0.994, 148.0: 0.995, 149.0: 1.0})
    assert saturated_s(pool, NO_FAILS) == 148.0
    fails = pd.DataFrame({"t": [120.0, 140.0, 145.0], "value": [1.0, 0.0, 0.0]})  # the first: of a running request
    assert saturated_s(pool, fails) == 140.0


def test_the_line_is_fitted_from_10_to_60_s_below_an_occupancy_of_0_6() -> None:
    edges = pd.Series({9.0: 0.5, 10.0: 0.1, 35.0: 0.35, 59.0: 0.6, 60.0: 0.59, 61.0: 0.1})
    assert filling(edges.drop(59.0)) == filling(edges)
    line = filling(edges.replace(0.59, 0.599))
    assert line is not None and line.slope == pytest.approx(0.499 / 50, rel=1e-3)
    assert filling(edges.drop([9.0, 10.0])) is None
    assert last_third(edges).index.tolist() == [59.0, 60.0, 61.0]
    flat = filling(filled(0.256, 0.0))
    assert flat is not None and saturation(flat) is None


def test_occupancy_stays_while_an_engine_makes_no_step() -> None:
    pool = occupancy(steps_of(np.array([1.5, 2.5, 3.25]), np.array([100, 400, 1000])), 10)
    assert pool.tolist() == [0, 0, 0.1, 0.4] + [1.0] * 7
    assert pool.index.tolist() == list(range(11))


def test_occupancy_is_over_all_replicas_of_the_first_stage() -> None:
    own = steps_of(np.array([1.0]), np.array([1000]))
    other = own.assign(replica=1, kv_used=0)
    talker = own.assign(stage="talker")
    assert occupancy(pd.concat([own, other, talker]), 3).tolist() == [0, 0.5, 0.5, 0.5]
    assert filling(occupancy(own, 11)) is None and slope(occupancy(own, 1)) is None
