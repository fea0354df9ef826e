"""Users who talk for many rounds, and the history that grows with them."""

import numpy as np
import pytest

from workloads.errors import UserError
from workloads.generators.dialogues import cut_history, number_turns, sum_before
from workloads.registry import make_trace


def test_interactive_users_stay_for_many_rounds_and_read_long_answers_longer() -> None:
    trace = make_trace("interactive", {"sessions": 4000}, 0)
    columns = trace.columns()
    rounds = np.bincount(columns["session"])
    assert rounds.mean() == pytest.approx(22.4, rel=0.06)
    more = rounds - 1
    assert more.mean() ** 2 / (more.var() - more.mean()) == pytest.approx(0.4, rel=0.15)
    later = columns["turn"] > 0
    before = np.roll(columns["output_tokens"], 1)[later]
    think = columns["think_s"][later]
    assert np.median(think[before < 100]) < 0.5 * np.median(think[before > 500])
    assert np.isnan(columns["arrival_s"][later]).all()


def test_interactive_in_an_open_loop_has_every_time() -> None:
    closed = make_trace("interactive", {}, 0).columns()
    open_ = make_trace("interactive", {"loop": "open"}, 0).columns()
    assert not np.isnan(open_["arrival_s"]).any()
    later = closed["turn"] > 0
    gaps = open_["arrival_s"][later] - np.roll(open_["arrival_s"], 1)[later]
    assert np.allclose(gaps, closed["think_s"][later], atol=1e-4)
    spoken = make_trace("interactive", {"loop": "open", "modality": "audio", "reply": "speech"}, 0).columns()
    gaps = spoken["arrival_s"][later] - np.roll(spoken["arrival_s"], 1)[later]
    taken = np.roll(spoken["audio_s"] + spoken["reply_audio_s"], 1)[later]
    assert np.all(gaps >= taken - 1e-3)


def test_a_conversation_that_grows_too_long_is_cut_and_sent_anew() -> None:
    trace = make_trace("interactive", {"max_history_tokens": 1000}, 0)
    columns = trace.columns()
    assert columns["history_tokens"].max() <= 1000
    again = (columns["turn"] > 0) & (columns["history_tokens"] == 0)
    assert (columns["input_tokens"][again] > 500).all()
    assert f"{again.sum()} turns after the older half was dropped, of 1000" in trace.header.notes
    with pytest.raises(UserError, match="set modality=text or leave it out"):
        make_trace("interactive", {"max_history_tokens": 1000, "modality": "audio", "reply": "speech"}, 0)


def test_history_grows_until_it_is_cut() -> None:
    new, replies, turn = np.array([10, 10, 10, 10]), np.array([40, 40, 40, 40]), np.arange(4)
    inputs, history = cut_history(new, replies, turn, most=120)
    assert history.tolist() == [0, 50, 100, 0]
    assert inputs.tolist() == [10, 10, 10, 70]
    session, turn = number_turns(np.array([2, 3]))
    assert (session.tolist(), turn.tolist()) == ([0, 0, 1, 1, 1], [0, 1, 0, 1, 2])
    assert sum_before(np.array([1, 2, 3, 4, 5]), turn).tolist() == [0, 1, 0, 3, 7]
