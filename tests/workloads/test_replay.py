"""Recorded requests: workloads `burstgpt` and `sessions` on small files in the published layouts."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from workloads.registry import make_trace
from workloads.trace import Trace

SIX = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,310,18,328,Conversation log
45,ChatGPT,905,240,1145,Conversation log
50,ChatGPT,0,0,0,Conversation log
118,GPT-4,88,261,349,API log
"""
EIGHT = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
100.0,aa,4,GPT-4,100,50,150,Conversation log
110.0,bb,2,ChatGPT,33,27,60,Conversation log
120.0,,2,GPT-4,70,10,80,API log
130.0,aa,4,GPT-4,170,30,200,Conversation log
140.0,,2,GPT-4,70,10,80,API log
150.0,aa,4,GPT-4,80,20,100,Conversation log
160.0,bb,2,ChatGPT,60,5,65,Conversation log
"""

Write = Callable[..., Path]


def turns_of(trace: Trace) -> list[list[tuple]]:
    names = ("arrival_s", "history_tokens", "input_tokens", "output_tokens")
    return [[tuple(turn.row()[name] for name in names) for turn in session.turns] for session in trace.sessions]


def burstgpt(path: Path, **params) -> Trace:
    return make_trace("burstgpt", {"path": str(path), **params}, 0)


def sessions(path: Path, **params) -> Trace:
    return make_trace("sessions", {"path": str(path), **params}, 0)


def test_burstgpt_six_columns_are_single_requests(csv_file: Write) -> None:
    trace = burstgpt(csv_file(SIX))
    assert turns_of(trace) == [[(0.0, 0, 310, 18)], [(40.0, 0, 905, 240)], [(113.0, 0, 88, 261)]]
    assert set(trace.columns()["modality"]) == {"text"}
    assert trace.header.notes == ["1 of 4 rows dropped: zero request or response tokens", "3 of 4 rows used"]


@pytest.mark.parametrize("name", ["Session ID", "SessionID"])
def test_burstgpt_eight_columns_group_conversations(csv_file: Write, name: str) -> None:
    trace = burstgpt(csv_file(EIGHT.replace("Session ID", name)))
    aa, bb, *alone = turns_of(trace)
    # 170 tokens hold the 100 + 50 of the first turn; 80 cannot hold the 200 before them.
    assert aa == [(0.0, 0, 100, 50), (30.0, 150, 20, 30), (50.0, 0, 80, 20)]
    # A request of just the 33 + 27 tokens before it would leave nothing new.
    assert bb == [(10.0, 0, 33, 27), (60.0, 0, 60, 5)]
    assert alone == [[(20.0, 0, 70, 10)], [(40.0, 0, 70, 10)]]
    assert any(note.startswith("2 requests hold no more than") for note in trace.header.notes)


def test_replies_are_spoken_unless_text_is_asked_for(csv_file: Write) -> None:
    path = csv_file(SIX)
    columns = burstgpt(path).columns()
    rate = columns["reply_audio_s"] / columns["output_tokens"]
    assert ((rate > 0.15) & (rate < 0.5)).all()
    assert np.isnan(burstgpt(path, reply="text").columns()["reply_audio_s"]).all()


def test_a_replay_is_limited_sped_up_and_its_replies_cut(csv_file: Write) -> None:
    path = csv_file(SIX)
    assert len(burstgpt(path, limit=2).sessions) == 2
    assert burstgpt(path, time_scale=10).columns()["arrival_s"].tolist() == [0.0, 4.0, 11.3]
    cut = burstgpt(path, max_reply_tokens=100)
    assert cut.columns()["output_tokens"].tolist() == [18, 100, 100]
    assert "2 replies cut to 100 tokens" in cut.header.notes


def test_a_replay_is_scaled_until_its_busiest_window_has_the_rate(csv_file: Write) -> None:
    """The four requests from 10 to 13 s shall come within 2 s: 3 s of the record take 2 s."""
    recorded_s = [0, 10, 11, 12, 13, 40]
    rows = "".join(f"s{i},{t},10,20\n" for i, t in enumerate(recorded_s))
    trace = sessions(csv_file("session_id,t,query,output\n" + rows), peak_rate=2, peak_window_s=2, unit="s")
    assert trace.columns()["arrival_s"].tolist() == pytest.approx([t / 1.5 for t in recorded_s], abs=1e-6)
    assert trace.header.notes[-1] == "times divided by 1.5: the busiest 2 s have 2 per second"


def test_the_busiest_window_is_cut_out_of_a_record(csv_file: Write) -> None:
    rows = "".join(f"s{i % 3},{t},10,20\n" for i, t in enumerate([0, 1, 2, 50, 51, 52, 53, 90]))
    trace = sessions(csv_file("session_id,t,query,output\n" + rows), start_s="busiest", duration_s=10)
    assert sorted(trace.columns()["arrival_s"]) == [0, 1, 2, 3]
    assert trace.header.notes[2:] == [
        "busiest 10 s of the record: from 50.000000 s",
        "3 sessions began before the window: their earlier turns are left out",
    ]


def test_barge_ins_of_a_replay_are_nested_in_p_and_drawn_from_other_replies(csv_file: Write) -> None:
    header, first, second, *_ = SIX.splitlines()
    path = csv_file("\n".join([header, *[first, second] * 300]))
    half, all_ = (burstgpt(path, p=p).columns() for p in (0.5, 1.0))
    drawn = ~np.isnan(half["barge_in_after_s"])
    assert 0.4 < drawn.mean() < 0.6
    assert np.array_equal(half["barge_in_after_s"][drawn], all_["barge_in_after_s"][drawn])
    assert set(all_["barge_in_after_s"]) <= set(all_["reply_audio_s"])
    assert np.mean(all_["barge_in_after_s"] == all_["reply_audio_s"]) < 0.05


def test_blanks_and_a_byte_order_mark_change_nothing(csv_file: Write) -> None:
    text = "session_id, t ,query,output\n\n a , 5 ,10,100.0\nb,6,11,110\n , \na,7,12,120\n"
    trace = sessions(csv_file(text, encoding="utf-8-sig"))
    assert turns_of(trace) == [[(0.0, None, 10, 100), (2.0, None, 12, 120)], [(1.0, None, 11, 110)]]


def test_rows_out_of_order_are_sorted_and_rows_of_one_time_keep_their_order(csv_file: Write) -> None:
    trace = sessions(csv_file("session_id,t,query,output\na,9,1,1\nb,5,2,2\nc,9,3,3\nd,5,4,4\n"))
    assert trace.columns()["input_tokens"].tolist() == [2, 4, 1, 3]
    assert "2 rows earlier than the row before them: sorted by time" in trace.header.notes


def test_the_seed_changes_speech_but_not_the_record(csv_file: Write) -> None:
    path = str(csv_file(EIGHT))
    one, two = (make_trace("burstgpt", {"path": path}, seed).columns() for seed in (1, 2))
    assert not np.array_equal(one["reply_audio_s"], two["reply_audio_s"])
    for name in ("arrival_s", "input_tokens", "output_tokens"):
        assert np.array_equal(one[name], two[name])
