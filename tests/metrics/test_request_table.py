"""Each rule of the request table on a small hand-written event log."""

import numpy as np
import pandas as pd
import pytest

from harness.request_tables.request_table import COLUMNS, request_table
from tests.metrics.event_log import EventLog


def table(log: EventLog) -> pd.DataFrame:
    return request_table(log.events, log.trace)


def only(log: EventLog) -> pd.Series:
    rows = table(log)
    assert len(rows) == 1
    return rows.iloc[0]


def test_a_complete_spoken_turn():
    log = EventLog().start(lag=0.003)
    log.add(1.2, "first_text", value=2).add(1.4, "text", value=1).add(1.9, "text", value=2)
    log.produce(thinker=5, talker=24)
    log.audio((1.5, 0.5), (1.9, 1.0), (2.5, 0.5)).done(2.5, played=2.0)
    row = only(log)
    assert row["status"] == "completed" and row["spoken"]
    assert row["send_delay_s"] == 0.003
    assert row["ttft_s"] == pytest.approx(0.2)
    assert row["audio_ttfp_s"] == pytest.approx(0.5)
    assert row["tbt_mean_s"] == pytest.approx(0.7 / 4)
    assert row["tbt_max_s"] == pytest.approx(0.5)
    assert row["e2e_s"] == pytest.approx(1.5)
    assert row["completion_s"] == 2.5
    assert (row["audio_s"], row["packets"]) == (2.0, 3)
    assert row["rtf"] == pytest.approx(1.5 / 2.0)
    assert row["rtf_gen"] == pytest.approx(1.0 / 2.0)
    assert row["max_gap_s"] == row["underrun_fixed_s"] == 0.0
    assert row["continuous"] and row["continuous_fixed"]
    assert row["heard_s"] == 2.0
    assert (row["generated_entry"], row["heard_entry"]) == (5, 5)
    assert (row["generated_talker"], row["heard_talker"]) == (24, 24)
    assert row["queueing_entry_s"] == row["queueing_talker_s"] == pytest.approx(0.1)
    assert pd.isna(row["queueing_vocoder_s"])
    assert row["preemptions"] == 0


def test_latency_counts_from_the_schedule_not_from_the_send():
    prompt, late = EventLog().spoken_turn(), EventLog().spoken_turn()
    late.rows = [(*row[:5], 0.4) if row[1] == "turn_end" else row for row in late.rows]
    assert only(late)["audio_ttfp_s"] == only(prompt)["audio_ttfp_s"]
    assert only(late)["send_delay_s"] == 0.4


def test_an_empty_packet_is_not_the_first_audio():
    row = only(EventLog().start().audio((1.1, 0.0), (1.6, 0.5)).done(2.1, played=0.5))
    assert row["audio_ttfp_s"] == pytest.approx(0.6)
    assert row["packets"] == 1


def test_a_spoken_reply_without_audio_is_missing_and_not_continuous():
    row = only(EventLog().start().produce().done(2.0, played=0.0))
    for name in ("audio_ttfp_s", "rtf", "rtf_gen", "max_gap_s", "underrun_fixed_s"):
        assert pd.isna(row[name])
    assert (row["audio_s"], row["packets"]) == (0.0, 0)
    assert not row["continuous"] and not row["continuous_fixed"]


def test_empty_packets_alone_are_no_audio():
    row = only(EventLog().start().audio((1.1, 0.0), (1.6, 0.0)).done(2.0, played=0.0))
    assert pd.isna(row["audio_ttfp_s"]) and pd.isna(row["max_gap_s"]) and row["packets"] == 0


def test_one_packet_says_nothing_about_the_speed_of_generation():
    row = only(EventLog().start().audio((1.5, 2.0)).done(3.5, played=2.0))
    assert pd.isna(row["rtf_gen"]) and row["rtf"] == pytest.approx(0.25)


def test_small_gaps_that_add_up_divide_the_two_forms_of_continuity():
    row = only(EventLog().spoken_turn(gap=0.06))
    assert row["max_gap_s"] == pytest.approx(0.06) and row["continuous"]
    assert row["underrun_fixed_s"] == pytest.approx(0.18) and not row["continuous_fixed"]


def test_a_text_reply_has_no_audio_metrics_and_is_read_in_full():
    log = EventLog().start(spoken=False).produce(thinker=10)
    row = only(log.add(1.2, "first_text", value=1).add(1.6, "text", value=8).done(1.6))
    assert not row["spoken"] and row["e2e_s"] == pytest.approx(0.6)
    audio = ["audio_ttfp_s", "rtf", "rtf_gen", "audio_s", "packets", "max_gap_s", "underrun_fixed_s"]
    assert row[[*audio, "continuous", "continuous_fixed", "heard_s", "generated_talker"]].isna().all()
    assert row["generated_entry"] == row["heard_entry"] == 10


def test_a_failed_text_reply_is_read_as_far_as_it_arrived():
    log = EventLog().start(spoken=False).produce(thinker=10, end="abort")
    row = only(log.add(1.2, "first_text", value=1).add(1.6, "text", value=3).add(2.0, "turn_failed"))
    assert (row["generated_entry"], row["heard_entry"]) == (10, 4)
    assert pd.isna(row["continuous"])


def barged_in(at: float = 2.2, packets=((1.5, 1.0), (2.0, 2.0))) -> EventLog:
    log = EventLog().start().produce(talker=40, end="abort").audio(*packets)
    return log.barge_in(at, heard_s=0.7, thinker=2, talker=8)


def test_a_barged_in_turn_has_ttfp_and_gaps_but_no_rtf_e2e_or_continuity():
    row = only(barged_in())
    assert row["status"] == "barged_in"
    assert row["audio_ttfp_s"] == pytest.approx(0.5)
    assert row["max_gap_s"] == 0.0
    assert row[["rtf", "rtf_gen", "e2e_s", "continuous", "continuous_fixed"]].isna().all()
    assert row["completion_s"] == 2.2 and row["heard_s"] == 0.7
    assert (row["generated_entry"], row["heard_entry"]) == (10, 2)
    assert (row["generated_talker"], row["heard_talker"]) == (40, 8)


def test_audio_that_arrives_after_the_barge_in_is_not_played():
    row = only(barged_in(packets=((1.5, 1.0), (2.3, 2.0), (9.0, 2.0))))
    assert (row["packets"], row["audio_s"], row["max_gap_s"]) == (1, 1.0, 0.0)


def test_a_pause_that_the_barge_in_ends_is_a_gap():
    row = only(barged_in(at=3.0, packets=((1.5, 0.5),)))
    assert row["max_gap_s"] == row["underrun_fixed_s"] == 1.0


def test_what_a_barged_in_turn_heard_is_missing_when_nobody_logged_it():
    log = EventLog().start().produce(talker=40, end="abort").audio((1.5, 1.0)).barge_in(2.0, 0.5, thinker=2)
    row = only(log)
    assert row["heard_entry"] == 2 and pd.isna(row["heard_talker"])


def test_a_missed_barge_in_hears_everything():
    log = EventLog().spoken_turn().add(3.4, "barge_in_missed")
    row = only(log)
    assert row["barge_in_missed"] and row["status"] == "completed"
    assert row["heard_talker"] == row["generated_talker"]


@pytest.mark.parametrize(("last", "status"), [("turn_failed", "failed"), (None, "unfinished")])
def test_failed_and_unfinished_turns_are_not_continuous_and_keep_their_ttfp(last, status):
    log = EventLog().start().produce(talker=40, end="abort").audio((1.5, 1.0), (2.0, 1.0))
    row = only(log.add(5.0, last) if last else log)
    assert row["status"] == status
    assert row["audio_ttfp_s"] == pytest.approx(0.5)
    assert not row["continuous"] and not row["continuous_fixed"]
    assert row[["rtf", "rtf_gen", "e2e_s", "max_gap_s", "completion_s", "heard_s"]].isna().all()
    assert row["generated_talker"] == 40 and pd.isna(row["heard_talker"])


def test_a_failure_after_a_barge_in_is_a_failure():
    row = only(EventLog().start().barge_in(2.0, 0.5).add(2.5, "turn_failed"))
    assert row["status"] == "failed"


def test_a_turn_cut_while_the_user_speaks_is_unfinished_and_measures_nothing():
    log = EventLog().add(0.0, "session_start", turn=-1).start()
    log.rows = [row for row in log.rows if row[1] != "turn_end"]
    row = only(log)
    assert row["status"] == "unfinished"
    assert row[["turn_end_s", "audio_ttfp_s", "ttft_s", "generated_entry", "preemptions"]].isna().all()


def test_turns_that_never_started_have_no_row():
    log = EventLog().start()
    log.trace_rows.append((0, 1, 5.0))
    assert len(table(log)) == 1


def test_generated_counts_what_was_in_flight_at_the_abort_and_falls_back_to_the_steps():
    log = EventLog().start().add(1.0, "arrive", stage="talker").add(1.5, "token", stage="talker", value=3)
    assert only(log)["generated_talker"] == 3
    assert only(log.add(1.6, "abort", stage="talker", value=4))["generated_talker"] == 4


def test_a_stage_that_generated_nothing_had_nothing_to_hear():
    row = only(EventLog().start().add(1.0, "arrive", stage="talker").add(2.0, "turn_failed"))
    assert (row["generated_talker"], row["heard_talker"]) == (0, 0)


def test_queueing_is_missing_for_a_request_that_never_started():
    row = only(EventLog().start().add(1.0, "arrive", stage="vocoder"))
    assert pd.isna(row["queueing_vocoder_s"]) and row["preemptions"] == 0


def test_queueing_counts_from_the_first_arrival_to_the_first_start():
    log = EventLog().start()
    for t, kind in ((1.0, "arrive"), (1.5, "start"), (2.0, "arrive"), (2.1, "start")):
        log.add(t, kind, stage="vocoder")
    assert only(log)["queueing_vocoder_s"] == 0.5


def test_preemptions_of_all_stages_add_up():
    log = EventLog().start().produce(talker=4)
    for t, stage in ((1.12, "entry"), (1.15, "talker"), (1.18, "talker")):
        log.add(t, "preempt", stage=stage)
    assert only(log)["preemptions"] == 3


def test_text_in_one_message_has_no_time_between_tokens():
    row = only(EventLog().start(spoken=False).add(1.5, "first_text", value=9).done(1.5))
    assert row["ttft_s"] == 0.5 and pd.isna(row["tbt_mean_s"]) and pd.isna(row["tbt_max_s"])


def test_turns_do_not_mix_and_come_in_order():
    log = EventLog().spoken_turn(1, 0, ttfp=0.3).spoken_turn(0, 1, at=10.0, ttfp=0.2, gap=0.2)
    log.spoken_turn(0, 0, ttfp=0.1)
    rows = table(log)
    assert list(zip(rows["session"], rows["turn"], strict=True)) == [(0, 0), (0, 1), (1, 0)]
    assert rows["audio_ttfp_s"].to_list() == pytest.approx([0.1, 0.2, 0.3])
    assert rows["continuous"].to_list() == [True, False, True]


def test_no_events_give_an_empty_table_of_the_same_columns():
    empty, full = table(EventLog()), table(EventLog().spoken_turn())
    assert len(empty) == 0
    assert list(empty.columns) == list(full.columns) == list(COLUMNS)
    assert empty.dtypes.equals(full.dtypes)


def test_missing_values_survive_parquet(tmp_path):
    rows = table(EventLog().spoken_turn().start(1, spoken=False))
    rows.to_parquet(tmp_path / "requests.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "requests.parquet"), rows)


def test_the_log_may_name_only_turns_of_the_trace():
    log = EventLog().spoken_turn(3, 2)
    with pytest.raises(ValueError, match="the trace lacks session 3 turn 2"):
        request_table(log.events, log.trace.iloc[:0])


def test_hearing_more_than_was_generated_is_refused():
    log = EventLog().start().produce(talker=5, end="abort").audio((1.5, 1.0))
    with pytest.raises(ValueError, match="session 0 turn 0 9 tokens of the talker were heard, but only 5"):
        table(log.barge_in(2.0, 0.5, thinker=1, talker=9))


def test_a_turn_waits_for_its_history_until_it_has_arrived():
    log = EventLog().start().produce().done(2.0)
    log.add(1.0, "load_start", stage="entry").add(1.07, "load_end", stage="entry", value=300)
    row = only(log)
    assert row["reload_s"] == pytest.approx(0.07) and row["reload_blocks"] == 300
    assert row["preloaded_blocks"] == 0


def test_a_turn_that_waits_for_nothing_waited_no_time_and_one_that_never_started_is_unknown():
    assert only(EventLog().start().produce().done(2.0))["reload_s"] == 0.0
    lost = EventLog().start().add(1.0, "arrive", stage="entry").add(1.0, "load_start", stage="entry")
    assert only(lost)[["reload_s", "reload_blocks", "preloaded_blocks"]].isna().all()


def test_a_reply_ends_when_it_is_received_cut_or_failed_whichever_comes_first():
    complete = EventLog().start().audio((1.5, 5.0)).add(2.0, "reply_done")
    heard_in_part = complete.barge_in(4.0, 2.5, thinker=1, talker=1)
    assert only(heard_in_part)[["completion_s", "ended_s"]].tolist() == [4.0, 2.0]
    assert only(EventLog().start().audio((1.5, 5.0)).barge_in(3.0, 1.5))["ended_s"] == 3.0
    failed = only(EventLog().start().add(7.0, "turn_failed"))
    assert failed["ended_s"] == 7.0 and np.isnan(failed["completion_s"])
    assert np.isnan(only(EventLog().start())["ended_s"])
