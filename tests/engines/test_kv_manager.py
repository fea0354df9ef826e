"""LiveServe's KV manager on a scripted store: next-use estimates, protection, preloads (paper section 5.2; T-j)."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.systems.liveserve import estimate
from engines.turns.monitor import CORRECTION_S, Ack, Monitor, Phase, SessionView
from tests.engines.kv_bench import TIMEOUT_S, Bench, listener


@pytest.fixture
def bench() -> Bench:
    return Bench()


SPOKEN = {"first_audio_s": 9.9, "audio_sent_s": 30.0, "audio_complete": True}
REPORTED = SPOKEN | {"played_s": 4.0, "last_ack_s": 14.0, "reply_gap_s": 3.0}
UNFINISHED = {"first_audio_s": 10.0, "audio_sent_s": 2.0}
SILENT = {"first_audio_s": 10.0, "audio_sent_s": 20.0, "last_ack_s": 10.5, "played_s": 0.2}
"""Nobody reports any more."""


@pytest.mark.parametrize(
    ("fields", "now", "expected"),
    [
        pytest.param(REPORTED | {"playing": True}, 14.0, 14.0 + 26.0 + 3.0, id="end of playback and the gap"),
        pytest.param(REPORTED | {"playing": True}, 15.5, 43.0, id="the same while time passes"),
        pytest.param(REPORTED, 15.5, 44.5, id="a player that waits moves it"),
        pytest.param(UNFINISHED, 10.0, 10.0 + 12.0 + 2.0, id="as long as the workload's replies"),
        pytest.param(UNFINISHED | {"reply_audio_s": 7.0}, 10.0, 10.0 + 7.0 + 2.0, id="as the session's replies"),
        pytest.param(UNFINISHED | {"reply_audio_s": 7.0, "audio_sent_s": 9.0}, 10.0, 21.0, id="longer than expected"),
        pytest.param(UNFINISHED | {"reply_audio_s": 7.0, "audio_complete": True}, 10.0, 14.0, id="complete"),
        pytest.param(SILENT, 15.0, 30.0 + 2.0, id="without reports the time since first audio counts"),
        pytest.param(SILENT, 50.0, 50.0 + 2.0, id="never in the past"),
    ],
)
def test_next_use_is_the_end_of_playback_plus_the_gap(fields: dict[str, Any], now: float, expected: float):
    view = listener(phase=Phase.PLAYING, **fields)
    assert estimate.next_use_s(view, now, TIMEOUT_S) == pytest.approx(expected)


def test_a_session_without_an_estimate_is_left_to_lru():
    view = SessionView(1, 0.3, phase=Phase.AWAIT_FIRST_AUDIO)
    assert estimate.next_use_s(view, 5.0, TIMEOUT_S) is None, "no reply has been spoken: perhaps none ever is"
    bench = Bench()
    bench.store.index.add(7, {1: 0})
    bench.kv.changed(view, 5.0)
    bench.kv.turn_arrived(1, 5.0)
    bench.kv.turn_started(1, 5.0)
    assert bench.counters == {"fallback_lru": 1}
    assert bench.store.index.pop(1) == []


def test_the_monitor_learns_lengths_and_gaps_of_sessions_and_of_the_workload():
    monitor = Monitor(0.3)
    for session, start_s, length_s in ((1, 0.0, 2.0), (1, 20.0, 4.0), (2, 40.0, 7.0)):
        turn = monitor.view(session, start_s).epoch + 1
        monitor.speech_start(session, start_s)
        monitor.turn_committed(session, turn, start_s + length_s)
        monitor.audio_sent(session, turn, 5.0, start_s + 8.0)
        monitor.reply_spoken(session, 5.0, 20, start_s + 8.0)
        monitor.playback_done(session, turn, start_s + 13.0)
    one, two = monitor.view(1, 60.0), monitor.view(2, 60.0)
    assert (one.utterance_s, two.utterance_s) == (pytest.approx(2.0 + 0.3 * 2.0), 7.0)
    assert (one.reply_gap_s, two.reply_gap_s) == (11.0, None), "from 13.0 to 24.0"
    assert two.workload is one.workload
    assert (one.workload.utterance.value, one.workload.reply_gap.value) == (4.0, 11.0)


def test_a_turn_spoken_over_the_reply_says_nothing_of_the_gap():
    monitor = Monitor(0.3)
    monitor.turn_committed(1, 0, 1.0)
    monitor.audio_sent(1, 0, 5.0, 2.0)
    monitor.barge_in(1, 3.0)
    monitor.turn_committed(1, 1, 4.5)
    view = monitor.view(1, 4.5)
    assert (view.reply_gap_s, view.utterance_s) == (None, 1.5)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=600))
def test_a_workloads_median_is_that_of_its_newest_observations(values):
    median = SessionView(0, 0.3).workload.reply_gap
    for value in values:
        median.add(value)
    newest = sorted(values[-255:])
    assert median.value == newest[len(newest) // 2]


def test_an_ack_asks_for_a_new_estimate_only_if_it_moves_the_end_of_playback():
    monitor = Monitor(0.3)
    monitor.turn_committed(1, 0, 0.0)
    monitor.audio_sent(1, 0, 5.0, 1.0)
    steady = [monitor.playback_ack(1, Ack(1.0 + 0.1 * i, 0, 0.1 * i, True)) for i in range(20)]
    assert not any(steady)
    stalled = [monitor.playback_ack(1, Ack(3.0 + 0.1 * i, 0, 1.9, False)) for i in range(10)]
    assert stalled.count(True) == 3, f"once for each {CORRECTION_S} s without progress, at the next report"
    assert not monitor.playback_ack(1, Ack(9.0, 7, 0.0, True)), "of another turn"


def test_a_closed_session_is_evicted_first(bench: Bench):
    bench.store.index.add(7, {1: 0})
    bench.store.index.add(8, {2: 0})
    bench.store.index.key(2, 1e9)
    bench.speaks(1, 10, 0.0)
    bench.kv.forget(1)
    assert bench.store.index.pop(2) == [7, 8]
    assert bench.store.cancelled == [1]
    assert bench.counters == {"preload_issued": 1, "preload_cancel": 1}


@pytest.mark.parametrize(
    ("missing", "queue_s", "margin_s", "outcome"),
    [
        (64, 0.0, 0.0, "issued"),  # 64 blocks/s for one second
        (65, 0.0, 0.0, "skip_time"),
        (48, 0.0, 0.25, "issued"),
        (49, 0.0, 0.25, "skip_time"),
        (48, 0.25, 0.0, "issued"),  # the copy engine is busy for a quarter of it
        (49, 0.25, 0.0, "skip_time"),
    ],
)
def test_a_preload_is_let_in_at_equality_and_not_one_block_later(missing, queue_s, margin_s, outcome: str):
    bench = Bench(preload_margin_s=margin_s)
    bench.store.queue_s = queue_s
    bench.speaks(1, missing, 10.0, length_s=1.0)
    assert bench.counters == {f"preload_{outcome}": 1}


def test_blocks_of_admitted_preloads_count_as_queued(bench: Bench):
    bench.speaks(1, 48, 10.0, length_s=1.0)  # 16 with the engine, 32 to come: half a second
    bench.speaks(2, 33, 10.0, length_s=1.0)
    bench.speaks(3, 32, 10.0, length_s=1.0)
    assert bench.counters == {"preload_issued": 2, "preload_skip_time": 1}
    assert bench.kv.preloads.keys() == {1, 3}


@pytest.mark.parametrize(("blocks_come_s", "outcome"), [(0.4, "issued"), (0.6, "skip_space")])
def test_a_preload_waits_half_a_second_at_most_and_goes_on_when_blocks_come(blocks_come_s: float, outcome: str):
    bench = Bench(empty=0)
    bench.speaks(1, 48, 0.0, length_s=4.0)
    for now in np.arange(0.02, 0.8, 0.02).tolist():
        bench.store.empty_blocks = 100 if now >= blocks_come_s else 0
        bench.kv.act(now, False)
    assert bench.counters == {"preload_wait": 1, f"preload_{outcome}": 1}


@pytest.mark.parametrize(("next_use_s", "issued"), [(3.999, 0), (4.0, 0), (4.001, 1)])
def test_blocks_come_only_from_sessions_needed_strictly_later(next_use_s: float, issued: int):
    """The turn is due at 4.0."""
    bench = Bench(empty=10)
    for block in range(20):
        bench.store.index.add(block, {9: block})
    bench.store.index.key(9, next_use_s)
    bench.speaks(1, 30, 0.0, length_s=4.0)
    assert bench.counters["preload_issued"] == issued


def test_kv_loaded_early_takes_up_a_fifth_of_the_pool_at_most(bench: Bench):
    bench.speaks(1, 120, 0.0)
    bench.speaks(2, 80, 0.0)
    bench.speaks(3, 1, 0.0)
    assert bench.kv.reserved == 200
    assert bench.counters == {"preload_issued": 2, "preload_wait": 1}
    bench.kv.act(0.5, False)
    assert bench.counters["preload_skip_cap"] == 1


def test_a_turn_that_comes_too_soon_loads_the_rest_itself(bench: Bench):
    bench.speaks(1, 40, 0.0)
    bench.arrives(1, 0.2)
    bench.kv.turn_arrived(1, 0.3)
    assert bench.store.cancelled == [1]
    bench.speaks(2, 40, 0.3)
    bench.kv.turn_arrived(2, 0.4)
    assert bench.counters == {"preload_issued": 2, "preload_late": 2, "preload_partial": 1, "preload_blocks": 16}
    assert not bench.kv.preloads


def test_urgent_requests_hold_what_waits_and_end_the_newest_load_first(bench: Bench):
    for session in (1, 2):
        bench.speaks(session, 40, 0.0)
    bench.store.host[3] = 10
    bench.kv.expect_turn(3, 0.1)
    bench.kv.act(0.1, True)
    assert list(bench.kv.preloads) == [1, 3], "2 was the newest"
    assert bench.counters["preload_hold"] == 1
    bench.kv.act(0.12, True)
    assert list(bench.kv.preloads) == [3]
    assert bench.store.cancelled == [1]
    bench.kv.act(0.14, False)
    assert bench.store.loading == {3: 10}
    assert (bench.counters["preload_cancel"], bench.counters["preload_issued"]) == (2, 3)


def test_what_was_loaded_for_a_turn_that_was_none_is_idle_again(bench: Bench):
    view = bench.speaks(1, 32, 0.0)
    bench.arrives(1, 0.1)
    assert bench.kv.preloads[1].loaded == 16 and 1 in bench.store.loading
    view.phase, view.playback_end_s, view.reply_gap_s = Phase.IDLE, 1.0, 2.0
    bench.kv.cancel_expected_turn(1, 0.2)
    bench.kv.changed(view, 0.2)
    assert bench.store.cancelled == [1] and not bench.kv.preloads and bench.kv.reserved == 0
    assert bench.counters["preload_false"] == 1 and bench.counters["preload_false_blocks"] == 16
    bench.store.index.add(7, {1: 0})
    assert bench.store.index.pop(1) == [7], "nothing protects it"
