"""The trace for reload figures: who comes when, with how much, and how much more than a pool that is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engines.replays import run
from workloads.generators.revisit import RevisitParams, pressure
from workloads.registry import make_trace


def test_everybody_comes_back_in_the_order_in_which_they_came():
    columns = make_trace("revisit", {"fillers": 2, "rounds": 2, "gap_s": 10, "speech_s": 3}, 0).columns()
    order = np.argsort(columns["arrival_s"], kind="stable")
    came = [(int(s), int(t)) for s, t in zip(columns["session"][order], columns["turn"][order], strict=True)]
    one = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    assert came == one + [(session + 3, turn) for session, turn in one]
    assert np.all(np.diff(columns["arrival_s"][order]) == 10)
    assert set(columns["input_tokens"][columns["turn"] == 0]) == {36_000}
    assert set(columns["audio_s"][columns["turn"] == 1]) == {3.0}


@pytest.mark.parametrize(("reply", "spoken"), [("speech", 5.6), ("text", None)])
def test_replies_are_short_and_spoken_or_not(reply: str, spoken: float | None):
    [session, *_] = make_trace("revisit", {"reply": reply}, 0).sessions
    assert [turn.reply_audio_s for turn in session.turns] == [spoken, spoken]
    assert [turn.output_tokens for turn in session.turns] == [20, 20]


@given(st.integers(1, 8), st.integers(0, 5), st.integers(1, 3))
def test_all_sessions_lead_to_the_first_replica(replicas: int, fillers: int, rounds: int):
    trace = make_trace("revisit", {"replicas": replicas, "fillers": fillers, "rounds": rounds}, 0)
    ids = {session.id for session in trace.sessions}
    assert len(ids) == rounds * (1 + fillers)
    assert {id % replicas for id in ids} == {0}


def test_pressure_is_what_the_pool_would_have_to_hold():
    params = RevisitParams(history_tokens=16_000, fillers=3, filler_tokens=8_000, reply_tokens=10)
    assert pressure(params, 1251) == pytest.approx((16_000 + 24_000 + 40) / 20_000)
    assert pressure(params, 1251, block_size=32) == pytest.approx(pressure(params, 2501))


@pytest.mark.parametrize(("blocks", "comes_back"), [(700, True), (300, False)])
def test_the_target_s_context_is_still_there_only_without_pressure(blocks: int, comes_back: bool):
    """Where the pool holds everything, the second turn computes what is new; where not, what was evicted as well."""
    sizes = {"history_tokens": 2000, "filler_tokens": 2000, "fillers": 3, "gap_s": 8}
    params = RevisitParams(**sizes)
    assert (pressure(params, blocks) <= 1) == comes_back
    steps = run(
        make_trace("revisit", sizes, 0), "vllm_omni_wo", server={"kv_pool_blocks": blocks}
    ).steps.to_pandas()
    returns = steps.query("stage == 'thinker' and t_s > 4 * 8")
    computed = returns["prefill_tokens"].sum()
    said = 4 * 52  # four times 4 s of speech at 13 tokens a second
    assert (computed < said + 4 * 40) == comes_back
