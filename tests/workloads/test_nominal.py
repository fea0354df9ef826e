"""The nominal timeline follows the client's rules with a server that takes no time."""

from dataclasses import replace

import numpy as np

from tests.workloads.test_trace import TURN
from workloads.trace import Trace
from workloads.transforms.nominal import nominal

SPOKEN = TURN.changed(audio_s=2.0, reply_audio_s=10.0, output_tokens=40, input_tokens=26)


def later(turn: int, **fields) -> object:
    return SPOKEN.changed(turn=turn, arrival_s=None, **fields)


def test_users_think_interrupt_and_are_never_early() -> None:
    turns = [
        SPOKEN,  # 0 to 2 s, reply to 12 s
        later(1, think_s=1.5, barge_in_after_s=4.0),  # 13.5 to 15.5 s, cut at 19.5 s
        # At once; the cut comes with the end of the reply: too late
        later(2, think_s=3.0, barge_in_after_s=10.0),
        later(3, think_s=0.0),
        SPOKEN.changed(turn=4, arrival_s=20.0),  # recorded while the reply before was still playing
        SPOKEN.changed(turn=5, arrival_s=100.0),
    ]
    timeline = nominal(Trace.from_turns(turns))
    assert timeline.start_s.tolist() == [0, 13.5, 19.5, 31.5, 43.5, 100]
    assert (timeline.said_s - timeline.start_s == 2).all()
    assert timeline.end_s.tolist() == [12, 19.5, 31.5, 43.5, 55.5, 112]
    assert timeline.interrupted.tolist() == [False, True, False, False, False, False]
    # 26 new and 40 reply tokens a turn; of the interrupted reply 4 of 10 s were heard.
    assert timeline.context_tokens.tolist() == [0, 66, 66 + 26 + 16, 174, 240, 306]
    assert timeline.continues.all()


def test_a_stated_context_counts_and_a_text_reply_takes_no_time() -> None:
    typed = SPOKEN.changed(modality="text", audio_s=None, reply_audio_s=None, history_tokens=0)
    turns = [
        typed,
        replace(typed, turn=1, arrival_s=5.0, history_tokens=66),
        replace(typed, turn=2, arrival_s=6.0, history_tokens=9),
        replace(typed, turn=3, arrival_s=7.0, history_tokens=None),
        replace(typed, session=3, arrival_s=6.5),
    ]
    timeline = nominal(Trace.from_turns(turns))
    assert np.array_equal(timeline.end_s, timeline.start_s)
    assert timeline.context_tokens.tolist() == [0, 66, 9, 75, 0]
    assert timeline.continues.tolist() == [True, True, False, True, True]


def test_an_interruption_and_a_correction_move_the_next_turn() -> None:
    """An interruption 4 s into the reply, a correction 0.5 s after the turn; a murmur changes nothing."""
    floor = {"event_s": 2.0}
    turns = [
        SPOKEN.changed(event="interruption", event_after_s=4.0, **floor),  # 0 to 2 s, cut at 6 s
        later(1, think_s=9.0, event="correction", event_after_s=0.5, **floor),  # 6 to 8 s
        # 8.5 to 10.5 s, reply to 20.5 s
        later(2, think_s=9.0, event="backchannel", event_after_s=1.0, event_s=0.4),
        later(3, think_s=1.0),
    ]
    timeline = nominal(Trace.from_turns(turns))
    assert timeline.start_s.tolist() == [0, 6, 8.5, 21.5]
    assert timeline.end_s.tolist() == [6, 8, 20.5, 33.5]
    assert timeline.interrupted.tolist() == [True, True, False, False]
