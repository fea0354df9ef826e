"""Metrics of a run of turns: values worked out by hand, with their n and missing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.metrics.metric import Metric
from harness.metrics.metric_name import parsed
from harness.metrics.turns import DEFINITIONS, TTFP_TARGET_S, columns_of, effective_rps, summarise
from harness.request_tables.request_table import request_table
from harness.request_tables.steady_window import Window
from tests.metrics.event_log import EventLog, are, parts, steps


def summary(log: EventLog, *, kv=(), run_end_s: float = 20.0, **options) -> dict[str, Metric]:
    return summarise(request_table(log.events, log.trace), steps(*kv), run_end_s, **options)


def test_text_has_no_metric_of_spoken_replies():
    speech = summary(EventLog().spoken_turn())
    text = summary(EventLog().start(spoken=False).text((1.5, 1), (1.6, 2)).produce().done(2.0))
    absent = {name for name, metric in text.items() if metric.value is None and speech[name].value is not None}
    spoken = {name for name, definition in DEFINITIONS.items() if definition.spoken}
    assert "audio_ttfp_p50" in absent <= spoken
    assert not [name for name in spoken if text[name].value is not None]


def mixed() -> EventLog:
    """One turn each: complete, complete with a gap, silent, barged in, failed, unfinished, text."""
    log = EventLog().spoken_turn(0).spoken_turn(1, gap=0.2).start(2).produce(2).done(2.0, 2, played=0.0)
    log.start(3).produce(3, talker=30, end="abort").audio((1.9, 1.0), session=3)
    log.barge_in(2.4, 0.5, 3, thinker=4, talker=6)
    log.start(4).produce(4, talker=20, end="abort").audio((2.1, 1.0), session=4).add(9.0, "turn_failed", 4)
    log.start(5)
    return log.start(6, spoken=False).produce(6).add(1.3, "first_text", 6, value=10).done(1.3, 6)


# n and missing. Failed, unfinished and silent turns are infinitely late; the barged-in one has no whole reply.
STATISTICS = {
    "audio_ttfp": (6, 0), "ttft": (3, 4), "tbt": (2, 5), "e2e": (6, 0), "rtf": (5, 0), "rtf_gen": (5, 0),
    "max_gap": (5, 0), "queueing_entry": (6, 1), "queueing_talker": (4, 2), "queueing_vocoder": (0, 6),
    "reload": (6, 1), "turn_send_delay": (7, 0), "session_time": (0, 0), "session_pace": (0, 0),
}  # fmt: skip
# Barged in: 30 - 6 frames and 10 - 4 tokens; fully heard: two spoken (24 frames each), silent, text. Failed: unknown.
WASTE = {
    "wasted_token_ratio": (30 / 128, 5, 1), "generated_tokens": (128, 5, 1), "heard_tokens": (98, 5, 1),
    "wasted_token_ratio_entry": (6 / 50, 5, 1), "generated_tokens_entry": (50, 5, 1), "heard_tokens_entry": (44, 5, 1),
    "wasted_token_ratio_talker": (24 / 78, 3, 1), "generated_tokens_talker": (78, 3, 1),
    "heard_tokens_talker": (54, 3, 1),
}  # fmt: skip
# 10 blocks of 100 from 1 to 4 s, then 50 to 12 s; a vocoder has none.
STEPS = {
    "kv_occupancy_entry_mean": (430 / 1100, 2, 0), "kv_occupancy_entry_peak": (0.5, 2, 0),
    "kv_block_seconds_entry": (430, 2, 0), "busy_entry": (4 / 12, 2, 0), "busy_vocoder": (1 / 12, 1, 0),
    "prefill_tokens_entry": (0, 2, 0),
}  # fmt: skip
OTHERS = {
    "continuity": (1 / 5, 5, 0), "continuity_fixed_timeline": (1 / 5, 5, 0), "continuity_whole": (1 / 5, 5, 0),
    "completed_rps": (None, 5, 0), "completed_outside_window": (0, 5, 0), "effective_rps": (None, 4, 0),
    "completed_rps_whole": (None, 5, 0), "effective_rps_whole": (None, 4, 0), "steady_begin": (None, 7, 0),
    "steady_end": (None, 7, 0), "turns_in_ramp": (0, 7, 0), "turns_in_drain": (0, 7, 0),
    "ttfp_in_target": (3 / 6, 6, 0), "makespan": (12, 7, 0), "started": (7, 7, 0), "completed": (4, 7, 0),
    "barged_in": (1, 7, 0), "failed": (1, 7, 0), "unfinished": (1, 7, 0), "barge_in_rate": (1 / 6, 6, 0),
    "barge_in_missed_rate": (0, 6, 0), "reloaded_turns": (0, 6, 0), "reloaded_blocks": (0, 6, 1),
    "preloaded_blocks": (0, 6, 1), "preemptions": (0, 6, 1),
}  # fmt: skip


def mixed_summary(log: EventLog | None = None) -> dict[str, Metric]:
    """The metrics of `mixed`; the entry stage has 100 blocks and the vocoder none."""
    kv = [("entry", 0.0, 1.0, 10, 100), ("entry", 1.0, 3.0, 50, 100), ("vocoder", 0.0, 1.0, 0, 0)]
    return summary(log or mixed(), kv=kv, run_end_s=12.0)


def test_every_metric_of_a_run_has_its_n_what_is_missing_and_its_unit():
    """Counts, rates and shares also have their value."""
    metrics, known = mixed_summary(), WASTE | STEPS | OTHERS
    assert list(metrics) == list(DEFINITIONS)
    for name, metric in metrics.items():
        assert metric.unit == DEFINITIONS[name].unit, name
        family = parsed(name).family.removesuffix("_whole")
        if DEFINITIONS[name].statistic and family in STATISTICS:
            assert (metric.n, metric.missing) == STATISTICS[family], name
        else:
            assert parts(metric) == pytest.approx(known.get(name, (None, 0, 0))), name


def test_replies_that_never_end_are_infinitely_late():
    """After 0.3 s (text), 1.0 s (silent), 2.5 s (whole) and 3.1 s (with a gap); failed and unfinished ones never."""
    are(mixed_summary(), e2e_p50=((2.5 + 3.1) / 2, 6, 0), e2e_p90=(np.inf, 6, 0))


def test_turns_that_never_started_are_counted():
    assert parts(summary(EventLog().spoken_turn(), planned_turns=3)["started"]) == (1.0, 1, 2)


def test_an_empty_run_measures_nothing():
    metrics = summary(EventLog())
    counts = {"started", "completed", "barged_in", "failed", "unfinished", "completed_outside_window"}
    counts |= {"turns_in_ramp", "turns_in_drain"}
    for name, metric in metrics.items():
        assert parts(metric) == (0 if name in counts else None, 0, 0), name


def asked_each_second(turns: int, lasting_s: float = 2.5) -> EventLog:
    log = EventLog()
    for session in range(turns):
        log.start(session, spoken=False, at=float(session)).done(session + 1 + lasting_s, session)
    return log


def test_completed_rps_counts_inside_the_steady_window():
    """Turn k is asked at k + 1 s and complete at k + 3.5 s; a completion at the begin of the window does not count."""
    metrics = summary(asked_each_second(60), run_end_s=70.0, window=Window(10.5, 50.5))
    are(metrics, completed_rps=(1.0, 40, 0), completed_outside_window=(20, 60, 0), completed_rps_whole=(60 / 70, 60, 0))
    names = ("turns_in_ramp", "turns_in_drain", "steady_begin", "steady_end", "started", "completed")
    assert [metrics[name].value for name in names] == [10, 10, 10.5, 50.5, 60, 60]
    to_the_end = summary(asked_each_second(60), run_end_s=50.0, window=Window(10.5, np.inf))
    assert to_the_end["completed_rps"].value == pytest.approx(40 / 39.5, rel=0.03)
    assert to_the_end["steady_end"].value == 50.0


@pytest.mark.parametrize(
    ("lasting_s", "window", "rate", "n"),
    [
        (2.5, Window(10.0, 39.0), None, 29),
        (2.5, Window(10.0, 40.0), 30 / 30.0, 30),
        (11.0, Window(20.0, 52.0), None, 32),  # shorter than three replies
        (11.0, Window(20.0, 53.0), 33 / 33.0, 33),
    ],
)
def test_few_completions_and_a_short_window_give_no_rate(lasting_s: float, window: Window, rate: float | None, n: int):
    metrics = summary(asked_each_second(60, lasting_s), window=window, run_end_s=80.0)
    assert parts(metrics["completed_rps"]) == (rate, n, 0)


def test_effective_rps_needs_speech_unbroken_and_inside_the_steady_window():
    log = EventLog()
    for session in range(0, 40, 4):
        log.spoken_turn(session, at=session, gap=0.2).spoken_turn(session + 1, at=session + 1, ttfp=1.5)
        at = session + 2
        log.start(at, at=at).audio((at + 1.5, 5.0), session=at).barge_in(at + 2.0, 0.5, at)
        log.start(at + 1, spoken=False, at=at + 1).done(at + 3.0, at + 1)
    turns, span = columns_of(request_table(log.events, log.trace)), (0.0, 100.0)
    assert effective_rps(turns, span) == (pytest.approx(20 / 100), 30)
    assert effective_rps(turns, span, 1.0)[0] == pytest.approx(10 / 100)
    assert effective_rps(turns, span, 0.1)[0] == 0
    assert effective_rps(turns, None) == (None, 0)
    assert effective_rps(turns, (30.0, 100.0))[0] is None  # too few


def test_a_reply_that_began_early_has_no_latency_that_could_be_in_time():
    log = EventLog().spoken_turn(0).spoken_turn(1, ttfp=2.5).spoken_turn(2).add(0.9, "early_reply", 2)
    are(summary(log), ttfp_in_target=(1 / 2, 2, 0))


@settings(max_examples=20)
@given(st.permutations(range(7)))
def test_numbering_the_sessions_otherwise_changes_nothing(numbers: list[int]):
    renumbered = mixed()
    renumbered.rows = [(*row[:2], numbers[row[2]], *row[3:]) for row in renumbered.rows]
    renumbered.trace_rows = [(numbers[row[0]], *row[1:]) for row in renumbered.trace_rows]
    after = mixed_summary(renumbered)
    for name, metric in mixed_summary().items():
        assert parts(after[name]) == pytest.approx(parts(metric)), name


def test_reloads_are_shares_of_started_turns_and_sums_of_blocks():
    log = EventLog().start().produce().done(2.0).start(1).produce(1).done(2.0, 1)
    log.add(1.0, "load_start", 0, 0, "entry").add(1.05, "load_end", 0, 0, "entry", 40)
    log.add(1.1, "preloaded", 1, 0, "entry", 12)
    are(summary(log), reloaded_turns=(0.5, 2, 0), reloaded_blocks=(40, 2, 0), preloaded_blocks=(12, 2, 0))
    are(summary(log), reload_mean=(0.025, 2, 0))


@pytest.mark.parametrize(("ttfp_s", "share"), [(TTFP_TARGET_S, 1), (TTFP_TARGET_S + 0.001, 0)])
def test_a_first_packet_at_the_target_is_in_time(ttfp_s: float, share: int) -> None:
    are(summary(EventLog().spoken_turn(ttfp=ttfp_s)), ttfp_in_target=(share, 1, 0))
