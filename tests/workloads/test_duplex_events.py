"""What a trace says of an open microphone, and what it must not say."""

from dataclasses import replace

import pytest

from workloads.errors import UserError
from workloads.trace import Trace, Turn

TURN = Turn(0, 0, 0.0, "audio", 20, 3.0, 40, 5.0, None, None, None, 0.0)


def test_a_pause_and_an_event_survive_the_file(tmp_path):
    turn = replace(TURN, pause_after_s=1.0, pause_s=0.5, event="backchannel", event_after_s=0.8, event_s=0.3)
    trace = Trace.from_turns([turn])
    trace.save(tmp_path / "t.parquet")
    assert Trace.load(tmp_path / "t.parquet").sessions[0].turns == (turn,)
    assert trace != Trace.from_turns([replace(turn, event="noise")])


@pytest.mark.parametrize(
    "change, said",
    [
        ({"pause_s": 0.5}, "pause_after_s is None; goes with pause_s"),
        ({"pause_after_s": 2.6, "pause_s": 0.5}, "pause_s is 0.5; must end before the turn does"),
        (
            {"event": "cough", "event_after_s": 1.0, "event_s": 1.0},
            "event is cough; must be one of interruption",
        ),
        ({"event": "noise", "event_after_s": 1.0}, "event_s is None; goes with event"),
        ({"event_after_s": 1.0}, "goes with event"),
        (
            {"event": "noise", "event_after_s": 1.0, "event_s": 1.0, "reply_audio_s": None},
            "needs a spoken reply",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(change, said):
    with pytest.raises(UserError, match=said):
        Trace.from_turns([replace(TURN, **change)])
