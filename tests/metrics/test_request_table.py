"""Each rule of the request table on a small hand-written event log."""

from typing import Any

import pandas as pd
import pytest

from harness.request_tables.request_table import request_table
from tests.metrics.event_log import EventLog

SPEECH = ("audio_ttfp_s", "rtf", "rtf_gen", "max_gap_s", "underrun_fixed_s")


def table(log: EventLog) -> pd.DataFrame:
    return request_table(log.events, log.trace)


def missing(*names: str) -> dict[str, None]:
    return dict.fromkeys(names)


def measures(log: EventLog, **expected: Any) -> None:
    """Fail unless the log gives one row with these values; None: missing."""
    (row,) = table(log).to_dict("records")
    for name, value in expected.items():
        assert pd.isna(row[name]) if value is None else row[name] == pytest.approx(value), (name, row[name])


def test_a_complete_spoken_turn():
    log = EventLog().start(lag=0.003).text((1.2, 2), (1.4, 1), (1.9, 2)).produce(thinker=5, talker=24)
    log.audio((1.5, 0.5), (1.9, 1.0), (2.5, 0.5)).done(2.5, played=2.0)
    measures(log, status="completed", spoken=True, send_delay_s=0.003, completion_s=2.5, preemptions=0)
    measures(log, ttft_s=0.2, audio_ttfp_s=0.5, tbt_mean_s=0.7 / 4, tbt_max_s=0.5, e2e_s=1.5)
    measures(log, audio_s=2.0, packets=3, rtf=1.5 / 2.0, rtf_gen=1.0 / 2.0, heard_s=2.0)
    measures(log, max_gap_s=0, underrun_fixed_s=0, continuous=True, continuous_fixed=True)
    measures(log, generated_entry=5, heard_entry=5, generated_talker=24, heard_talker=24)
    measures(log, queueing_entry_s=0.1, queueing_talker_s=0.1, queueing_vocoder_s=None)


def test_latency_counts_from_the_schedule_not_from_the_send():
    late = EventLog().spoken_turn(ttfp=0.5)
    late.rows = [(*row[:5], 0.4) if row[1] == "turn_end" else row for row in late.rows]
    measures(late, audio_ttfp_s=0.5, send_delay_s=0.4)


def test_small_gaps_that_add_up_divide_the_two_forms_of_continuity():
    log = EventLog().spoken_turn(gap=0.06)
    measures(log, max_gap_s=0.06, continuous=True, underrun_fixed_s=0.18, continuous_fixed=False)


def test_a_text_reply_has_no_audio_and_is_read_as_far_as_it_came():
    log = EventLog().start(spoken=False).produce(thinker=10).text((1.2, 1), (1.6, 8)).done(1.6)
    measures(log, spoken=False, e2e_s=0.6, generated_entry=10, heard_entry=10, **missing(*SPEECH))
    measures(log, **missing("audio_s", "packets", "continuous", "continuous_fixed", "heard_s", "generated_talker"))
    failed = EventLog().start(spoken=False).produce(thinker=10, end="abort").text((1.2, 1), (1.6, 3))
    measures(failed.add(2.0, "turn_failed"), generated_entry=10, heard_entry=4, continuous=None)


def barged_in(at: float = 2.2, packets=((1.5, 1.0), (2.0, 2.0))) -> EventLog:
    log = EventLog().start().produce(talker=40, end="abort").audio(*packets)
    return log.barge_in(at, heard_s=0.7, thinker=2, talker=8)


def test_a_barged_in_turn_has_ttfp_and_gaps_but_no_rtf_e2e_or_continuity():
    measures(barged_in(), status="barged_in", audio_ttfp_s=0.5, max_gap_s=0, completion_s=2.2, heard_s=0.7)
    measures(barged_in(), generated_entry=10, heard_entry=2, generated_talker=40, heard_talker=8)
    measures(barged_in(), **missing("rtf", "rtf_gen", "e2e_s", "continuous", "continuous_fixed"))


@pytest.mark.parametrize(
    ("at", "packets", "expected"),
    [
        (2.2, ((1.5, 1.0), (2.3, 2.0), (9.0, 2.0)), {"packets": 1, "audio_s": 1.0, "max_gap_s": 0.0}),
        (2.2, ((1.5, 1.0), (2.2, 2.0)), {"packets": 2, "audio_s": 3.0, "max_gap_s": 0.0}),  # at the same instant
        (3.0, ((1.5, 0.5),), {"max_gap_s": 1.0, "underrun_fixed_s": 1.0}),  # the barge-in ends a pause
    ],
)
def test_a_reply_is_played_up_to_the_barge_in(at: float, packets: tuple, expected: dict[str, float]):
    measures(barged_in(at, packets), **expected)


def test_what_is_heard_of_a_barge_in_is_what_was_logged():
    log = EventLog().start().produce(talker=40, end="abort").audio((1.5, 1.0)).barge_in(2.0, 0.5, thinker=2)
    measures(log, heard_entry=2, heard_talker=None)
    missed = EventLog().spoken_turn(packets=4).add(3.4, "barge_in_missed")
    measures(missed, barge_in_missed=True, status="completed", generated_talker=24, heard_talker=24)
    log = EventLog().start().produce(talker=5, end="abort").audio((1.5, 1.0))
    with pytest.raises(ValueError, match="session 0 turn 0 9 tokens of the talker were heard, but only 5"):
        table(log.barge_in(2.0, 0.5, thinker=1, talker=9))


@pytest.mark.parametrize(("last", "status"), [("turn_failed", "failed"), (None, "unfinished")])
def test_failed_and_unfinished_turns_are_not_continuous_and_keep_their_ttfp(last: str | None, status: str):
    log = EventLog().start().produce(talker=40, end="abort").audio((1.5, 1.0), (2.0, 1.0))
    log = log.add(5.0, last) if last else log
    measures(log, status=status, audio_ttfp_s=0.5, continuous=False, continuous_fixed=False, generated_talker=40)
    measures(log, **missing("rtf", "rtf_gen", "e2e_s", "max_gap_s", "completion_s", "heard_s", "heard_talker"))


def test_generated_counts_what_was_in_flight_at_the_abort_and_falls_back_to_the_steps():
    came = EventLog().start().add(1.0, "arrive", stage="talker")
    measures(came.add(1.5, "token", stage="talker", value=3), generated_talker=3)
    measures(came.add(1.6, "abort", stage="talker", value=4), generated_talker=4)
    nothing = EventLog().start().add(1.0, "arrive", stage="talker").add(2.0, "turn_failed")
    measures(nothing, generated_talker=0, heard_talker=0)


def test_queueing_counts_from_the_first_arrival_to_the_first_start():
    log = EventLog().start().add(1.0, "arrive", stage="vocoder")
    measures(log, queueing_vocoder_s=None, preemptions=0)
    for t, kind in ((1.5, "start"), (2.0, "arrive"), (2.1, "start")):
        log.add(t, kind, stage="vocoder")
    measures(log, queueing_vocoder_s=0.5)


def test_preemptions_of_all_stages_add_up():
    log = EventLog().start().produce(talker=4)
    for t, stage in ((1.12, "entry"), (1.15, "talker"), (1.18, "talker")):
        log.add(t, "preempt", stage=stage)
    measures(log, preemptions=3)


def test_turns_do_not_mix_and_come_in_order_and_those_that_never_started_have_no_row():
    log = EventLog().spoken_turn(1, 0, ttfp=0.3).spoken_turn(0, 1, at=10.0, ttfp=0.2, gap=0.2)
    log.spoken_turn(0, 0, ttfp=0.1)
    log.trace_rows.append((0, 2, 5.0))
    rows = table(log)
    assert list(zip(rows["session"], rows["turn"], strict=True)) == [(0, 0), (0, 1), (1, 0)]
    assert rows["audio_ttfp_s"].to_list() == pytest.approx([0.1, 0.2, 0.3])
    assert rows["continuous"].to_list() == [True, False, True]


def test_the_log_may_name_only_turns_of_the_trace():
    log = EventLog().spoken_turn(3, 2)
    with pytest.raises(ValueError, match="the trace lacks session 3 turn 2"):
        request_table(log.events, log.trace.iloc[:0])


def test_a_turn_waits_for_its_history_until_it_has_arrived():
    log = EventLog().start().produce().done(2.0)
    measures(log, reload_s=0.0)
    log.add(1.0, "load_start", stage="entry").add(1.07, "load_end", stage="entry", value=300)
    measures(log, reload_s=0.07, reload_blocks=300, preloaded_blocks=0)
    lost = EventLog().start().add(1.0, "arrive", stage="entry").add(1.0, "load_start", stage="entry")
    measures(lost, **missing("reload_s", "reload_blocks", "preloaded_blocks"))


def test_a_reply_ends_when_it_is_received_cut_or_failed_whichever_comes_first():
    complete = EventLog().start().audio((1.5, 5.0)).add(2.0, "reply_done")
    measures(complete.barge_in(4.0, 2.5, thinker=1, talker=1), completion_s=4.0, ended_s=2.0)
    measures(EventLog().start().audio((1.5, 5.0)).barge_in(3.0, 1.5), ended_s=3.0)
    measures(EventLog().start().add(7.0, "turn_failed"), ended_s=7.0, completion_s=None)
    measures(EventLog().start(), ended_s=None)
    both = EventLog().start().barge_in(2.0, 0.5).add(2.5, "turn_failed")
    measures(both, status="failed", ended_s=2.0, completion_s=None)
