"""LiveServe's KV manager over a made-up store: next-use estimates, protection, what becomes of a preload (T-j)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.composition import component
from engines.speaking.monitor import CORRECTION_S, Ack, Monitor, Phase, SessionView
from engines.systems.liveserve import estimate
from engines.systems.liveserve.kv import LiveServeKv
from engines.systems.liveserve.params import Params
from tests.engines.kv_bench import TIMEOUT_S, Bench, listener

# Next use


def test_next_use_is_the_end_of_playback_plus_the_gap_and_does_not_change_while_time_passes():
    view = listener(phase=Phase.PLAYING, first_audio_s=9.9, audio_sent_s=30.0, audio_complete=True)
    view.played_s, view.ack_s, view.playing, view.reply_gap_s = 4.0, 14.0, True, 3.0
    assert estimate.next_use_s(view, 14.0, TIMEOUT_S) == 14.0 + 26.0 + 3.0
    assert estimate.next_use_s(view, 15.5, TIMEOUT_S) == pytest.approx(43.0)
    view.playing = False
    assert estimate.next_use_s(view, 15.5, TIMEOUT_S) == pytest.approx(44.5), "a player that waits moves it"


def test_an_unfinished_reply_is_expected_to_be_as_long_as_the_sessions_replies_then_as_the_workloads():
    view = listener(phase=Phase.PLAYING, first_audio_s=10.0, audio_sent_s=2.0)
    assert estimate.next_use_s(view, 10.0, TIMEOUT_S) == 10.0 + 12.0 + 2.0
    view.reply_audio_s = 7.0
    assert estimate.next_use_s(view, 10.0, TIMEOUT_S) == 10.0 + 7.0 + 2.0
    view.audio_sent_s = 9.0
    assert estimate.next_use_s(view, 10.0, TIMEOUT_S) == 10.0 + 9.0 + 2.0, "longer than expected already"
    view.audio_sent_s, view.audio_complete = 3.0, True
    assert estimate.next_use_s(view, 10.0, TIMEOUT_S) == 10.0 + 3.0 + 2.0


def test_without_playback_reports_the_time_since_first_audio_counts_and_longer_replies_end_later():
    short = listener(phase=Phase.PLAYING, first_audio_s=10.0, audio_sent_s=20.0, ack_s=10.5, played_s=0.2)
    long = listener(phase=Phase.PLAYING, first_audio_s=10.0, audio_sent_s=25.0, ack_s=10.5, played_s=0.2)
    ends = [estimate.playback_end_s(view, 15.0, TIMEOUT_S) for view in (short, long)]
    assert ends == [30.0, 35.0]
    assert estimate.playback_end_s(short, 50.0, TIMEOUT_S) == 50.0, "never in the past"


def test_what_nothing_is_known_of_is_left_to_lru():
    view = SessionView(1, 0.3, phase=Phase.AWAIT_FIRST_AUDIO)
    assert estimate.next_use_s(view, 5.0, TIMEOUT_S) is None, "no reply has been spoken: perhaps none ever is"
    assert estimate.next_use_s(SessionView(1, 0.3), 5.0, TIMEOUT_S) is None
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


def test_only_a_report_that_moves_the_end_of_playback_asks_for_a_look():
    monitor = Monitor(0.3)
    monitor.turn_committed(1, 0, 0.0)
    monitor.audio_sent(1, 0, 5.0, 1.0)
    steady = [monitor.playback_ack(1, Ack(1.0 + 0.1 * i, 0, 0.1 * i, True)) for i in range(20)]
    assert not any(steady)
    stalled = [monitor.playback_ack(1, Ack(3.0 + 0.1 * i, 0, 1.9, False)) for i in range(10)]
    assert stalled.count(True) == 3, f"once for each {CORRECTION_S} s without progress, at the next report"
    assert not monitor.playback_ack(1, Ack(9.0, 7, 0.0, True)), "of another turn"


# Protection


def test_a_session_is_protected_from_the_first_word_until_its_turn_starts():
    bench = Bench()
    bench.store.index.add(7, {1: 0})
    view = bench.speaks(1, 0, 10.0)
    bench.store.index.key(2, 1e6)
    assert bench.store.index.pop(1) == []
    view.phase, view.speech_end_s, view.reply_audio_s = Phase.AWAIT_FIRST_AUDIO, 14.0, 5.0
    bench.kv.changed(view, 14.0)
    bench.kv.turn_arrived(1, 14.1)
    assert bench.store.index.pop(1) == []
    bench.kv.turn_started(1, 14.2)
    assert bench.store.index.later_than(14.2 + 5.0) == 1, "a reply and a gap from now"
    assert bench.store.index.pop(1) == [7]


def test_a_typed_turn_keeps_its_place_from_commit_to_arrival():
    bench = Bench()
    bench.store.index.add(7, {1: 0})
    view = listener(phase=Phase.IDLE, playback_end_s=10.0)
    bench.kv.changed(view, 10.0)
    view.phase, view.playback_end_s = Phase.AWAIT_FIRST_AUDIO, None
    bench.kv.changed(view, 11.0)
    assert bench.store.index.later_than(12.0) == 0, "not put off by a reply while the turn is on its way"


def test_a_session_that_closed_goes_first():
    bench = Bench()
    bench.store.index.add(7, {1: 0})
    bench.store.index.add(8, {2: 0})
    bench.store.index.key(2, 1e9)
    bench.speaks(1, 10, 0.0)
    bench.kv.forget(1)
    assert bench.store.index.pop(2) == [7, 8]
    assert bench.store.cancelled == [1]
    assert bench.counters == {"preload_issued": 1, "preload_cancel": 1}


def test_the_mode_and_the_kind_of_index_are_the_parameters():
    off = Params.model_validate({"eviction": "off", "preload": False})
    manager = component("kv", "liveserve", "turns").manager
    assert isinstance(manager("thinker", Params.model_validate({})), LiveServeKv)
    assert isinstance(manager("talker", Params.model_validate({})), LiveServeKv), "where talkers keep KV"
    assert manager("thinker", off) is None
    assert Params.model_validate({"eviction": False, "preload": False}) == off, "as YAML reads off"
    assert Bench(eviction="log_only").store.mode == "log_only"
    bench = Bench(eviction="off", preload=True)
    assert bench.store.mode == "off"
    bench = Bench(preload=False, eviction_index="tail_scan")
    bench.speaks(1, 10, 0.0)
    assert not bench.kv.preloads and not bench.counters
    assert type(bench.store.index).__name__ == "TailScan"
