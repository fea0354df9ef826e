"""Interaction sessions at the engine: their context, shared prefixes, recycling, and how they end."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.deployments import load_deployment
from engines.models.token_ids import audio_ids, first_answer_id
from tests.engines import frames as calls
from tests.engines.frames import DEPLOYMENT, frames
from workloads.errors import UserError

serve: Callable[..., Any] = calls.serve
"""Pandas' stubs do not know which columns of a run hold numbers."""
FREE = {"feed_s": 0.0, "step_rpc_s": 0.0}
AUDIO = 28
"""Tokens of 2 s of audio."""


def blocks(tokens: int) -> int:
    return -(-tokens // 16)


@settings(max_examples=8)
@given(outputs=st.lists(st.integers(1, 40), min_size=2, max_size=12), template=st.integers(0, 30))
def test_a_frame_adds_its_input_and_its_answer_but_for_the_last_token(outputs: list[int], template: int):
    """M5: the last sampled token never enters the context."""
    contexts = []

    def arrange(server):
        engine = server.engines[0]
        joined = engine.scheduler.on_chunk
        engine.scheduler.on_chunk = lambda id, position: (contexts.append(position), joined(id, position))

    run = serve(
        frames(1, len(outputs), outputs=lambda session, frame: outputs[frame]),
        template_tokens=template,
        arrange=arrange,
        **FREE,
    )
    growth = [AUDIO + template + answered - 1 for answered in outputs]
    assert contexts == [sum(growth[:frame]) for frame in range(len(contexts))]
    assert len(contexts) == len(outputs)
    assert run.steps["kv_used"].max() == blocks(sum(growth))
    fed = run.kind("fed")
    assert fed["value"].tolist() == [AUDIO + template] * len(fed)


def test_audio_keeps_coming_while_the_engine_is_stalled():
    """M9: the queue grows by a chunk a frame and session, as clients do not wait."""
    stalled = serve(frames(32, 50, outputs=5), template_tokens=22, server={"kv_pool_blocks": 1500}, **FREE)
    assert stalled.silent(98.0) == 32
    assert set(stalled.kind("fed").groupby("session").size()) == {50}
    assert set(stalled.kind("turn_end").groupby("session").size()) == {50}
    assert 40.0 < 2.0 * stalled.counters["streaming_queue_peak"] < 80.0
    assert stalled.replay.proof["kv_blocks_used_after"] == 0
    assert not stalled.server.engines[0].scheduler.requests


def test_equal_content_and_only_that_has_equal_tokens():
    [session] = frames(1, 3, content=lambda session, frame: frame // 2).sessions
    same, other, last = session.turns
    vocab = load_deployment(DEPLOYMENT).model.stages["thinker"].vocab
    assert audio_ids(same, 28, vocab) == audio_ids(other, 28, vocab) != audio_ids(last, 28, vocab)
    assert first_answer_id(same, vocab) == first_answer_id(other, vocab) != first_answer_id(last, vocab)
    heard = [tuple(audio_ids(turn, 16, vocab)) for each in frames(300, 8).sessions for turn in each.turns]
    assert len(set(heard)) == len(heard)
    assert all(0 <= token < vocab for tokens in heard for token in tokens)


def test_only_sessions_that_hear_the_same_share_a_prefix():
    """M8: who joins a call in which the same was said finds it in the cache."""

    def prefilled(content) -> int:
        run = serve(frames(2, 4, apart_s=6.0, content=content), server={"prefix_caching": True}, **FREE)
        first = run.kind("start").drop_duplicates("session").set_index("session")["t"]
        step = run.steps[(run.steps["t_s"] == first[1])].iloc[0]
        return int(step["tokens"])

    # In that step the session that is on line already computes a chunk as well.
    assert prefilled(lambda session, frame: frame) == AUDIO - 16 + AUDIO
    assert prefilled(lambda session, frame: 100 * session + frame) == 2 * AUDIO


def test_recycling_charges_feed_s_for_each_carried_frame():
    """A Step with a recycled call takes the worker's time of its frame and of all that are carried over."""
    costs = {"feed_s": 0.01, "step_rpc_s": 0.0}
    run = serve(frames(1, 40, outputs=27), "recycling", recycle_at=600, carry=300, **costs)
    ticks = run.ticks.iloc[1:]  # the first one waits for the first token
    under_way = np.searchsorted(ticks["t"], run.kind("recycle")["t"], side="right") - 1
    recycled = np.isin(np.arange(len(ticks)), under_way)
    assert recycled.sum() == run.counters["recycles"] > 3
    latency = ticks["latency"]
    assert latency[recycled].mean() == pytest.approx((1 + 300 // AUDIO) * latency[~recycled].mean(), rel=0.3)


def test_a_call_that_is_not_ended_keeps_its_kv():
    """Appendix C: of two calls the first has gone before the second one comes."""
    ended, left = (
        serve(frames(2, 10, apart_s=40.0), ends_calls=ends, **FREE).steps["kv_used"] for ends in (True, False)
    )
    assert left.max() == pytest.approx(2 * ended.max(), abs=2)
    assert left.iloc[-1] == 0, "what was left is ended with the run"


def test_recycling_encodes_each_carried_frame_again():
    """Each frame that is carried over is one more clip for the encoder."""
    clips = []

    def arrange(server):
        device = server.engines[0].device
        work = device.work

        def counted(*asked):
            todo = work(*asked)
            clips.append(todo.clips)
            return todo

        device.work = counted

    run = serve(frames(2, 30, outputs=27), "recycling", formula=False, arrange=arrange, recycle_at=600, carry=300)
    again = run.counters["reencoded_tokens"] // AUDIO
    assert again == 10 * run.counters["recycles"] > 0
    assert sum(clips) == len(run.kind("fed")) + again


def too_long(**params) -> Any:
    """Session 0 says more than the others and is the first to have no room left, though its KV is bounded."""
    talk = frames(3, 30, outputs=lambda session, frame: 5 if session else 60)
    return serve(talk, "metronome", window=256, server={"kv_pool_blocks": 100}, **FREE, **params)


def test_a_session_that_outgrows_the_model_ends_alone_or_takes_all_with_it():
    one = too_long(on_max_len="finish_one")
    assert one.kind("session_failed")["session"].tolist() == [0]
    assert one.counters["max_len_hits"] == 1
    [hit] = one.kind("max_len").itertuples()
    assert hit.session == 0
    assert (one.returned(1)["tokens"].iloc[2:] == 5).all() and one.returned(1)["t"].iloc[-1] > 55.0
    everybody = too_long(on_max_len="crash_all")
    assert sorted(everybody.kind("session_failed")["session"]) == [0, 1, 2]
    assert everybody.counters["max_len_hits"] == 1
    assert everybody.kind("frame_out")["t"].max() <= hit.t + 1.0
    assert everybody.replay.proof["kv_blocks_used_after"] == 0


def test_a_run_that_can_outgrow_the_model_needs_on_max_len():
    with pytest.raises(UserError, match="on_max_len"):
        too_long()


def test_turns_are_refused_by_an_engine_of_frames():
    from workloads.registry import make_trace

    with pytest.raises(UserError, match="frames of one length"):
        serve(make_trace("voice", {"sessions": 2}, seed=0))


def test_a_call_after_a_crash_is_not_served():
    late = frames(4, 30, outputs=lambda session, frame: 100, apart_s=15.0)
    run = serve(late, "metronome", window=256, server={"kv_pool_blocks": 100}, on_max_len="crash_all", **FREE)
    failed = run.kind("session_failed").set_index("session")["t"]
    assert set(failed.index) == {0, 1, 2, 3}
    assert failed[3] == pytest.approx(45.0, abs=0.01)
