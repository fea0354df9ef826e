"""Steps on whole traces, and traces dealt out to several workers: what comes out is the same process."""

from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import starts
from tests.workloads.test_trace import turns_of_a_trace
from workloads.columns.classes import CLASS_COLUMNS
from workloads.errors import UserError
from workloads.registry import make_trace, serves
from workloads.statistics.describe import dispersion, gap_cv, rate
from workloads.trace import Trace, Turn
from workloads.transforms.shard import join, shard
from workloads.transforms.transform import classify, cut, loop, merge, scale_time, thin

TALK = make_trace("voice", {"sessions": 40, "p": 0.5}, 3)
BUSY = make_trace("poisson", {"requests": 20_000, "rate": 20}, 3)
CALLS = make_trace("metronome", {}, 0)


def test_a_thinned_poisson_process_is_one() -> None:
    times = starts(thin(BUSY, 0.3, seed=5))
    assert rate(times) == pytest.approx(6, rel=0.05)
    assert gap_cv(times) == pytest.approx(1, abs=0.05)
    assert dispersion(times, 5.0) == pytest.approx(1, abs=4 * np.sqrt(2 / (times[-1] / 5)))


def test_thinning_keeps_whole_sessions_and_says_how_many() -> None:
    few = thin(TALK, 0.5, seed=1)
    assert set(few.sessions) < set(TALK.sessions)
    assert few == thin(TALK, 0.5, seed=1)
    assert few != thin(TALK, 0.5, seed=2)
    note = f"thinned to 0.5 (seed 1): {len(few.sessions)} of 40 sessions, of {TALK.header.hash[:16]}"
    assert few.header.notes[-1] == note


def test_scaling_time_moves_arrivals_only() -> None:
    slow = scale_time(TALK, 2.0)
    assert np.allclose(starts(slow), 2 * starts(TALK))
    for name in ("audio_s", "think_s", "barge_in_after_s"):
        assert np.array_equal(slow.columns()[name], TALK.columns()[name], equal_nan=True)
    assert slow.header.notes[-1].startswith("arrivals times 2, of ")


def test_a_cut_keeps_the_sessions_that_begin_in_it() -> None:
    first, last = starts(TALK)[10], starts(TALK)[20]
    part = cut(TALK, first, last)
    assert len(part.sessions) == 10
    assert starts(part)[0] == 0
    assert part.header.notes[-1].endswith(f"10 of 40 sessions, of {TALK.header.hash[:16]}")


def test_merging_keeps_every_session_and_where_it_came_from() -> None:
    both = merge([TALK, BUSY])
    assert len(both) == len(TALK) + len(BUSY)
    assert np.array_equal(starts(both), np.sort(np.concatenate([starts(TALK), starts(BUSY)])))
    assert both.header.generator == "voice+poisson"
    assert [part["hash"] for part in both.header.params["merged"]] == [TALK.header.hash, BUSY.header.hash]
    assert both.header.notes[0].startswith("voice: replies: ")


@settings(max_examples=40)
@given(parts=st.lists(turns_of_a_trace(), min_size=1, max_size=3))
def test_merging_keeps_every_turn_in_its_class_under_a_new_number(parts: list[list[Turn]]) -> None:
    def without_number(turns: list[Turn]) -> list[tuple]:
        return sorted((astuple(turn)[1:] for turn in turns), key=repr)

    merged = merge([Trace.from_turns(part) for part in parts]).sessions
    assert sorted(session.id for session in merged) == [*range(len(merged))]
    assert len(merged) == sum(len({turn.session for turn in part}) for part in parts)
    turns = [turn for session in merged for turn in session.turns]
    assert without_number(turns) == without_number([turn for part in parts for turn in part])
    whole = {tuple(without_number(list(session.turns))) for session in merged}
    for part in parts:
        for session in Trace.from_turns(part).sessions:
            assert tuple(without_number(list(session.turns))) in whole


def test_a_class_replaces_the_one_before_and_changes_nothing_else() -> None:
    first = classify(TALK, "online", priority=-1, ttft_deadline_s=1.5, tbt_deadline_s=0.25)
    again = classify(first, "batch", priority=10)
    for trace, label in ((first, ("online", -1, 1.5, 0.25)), (again, ("batch", 10, None, None))):
        told = [turn for session in trace.sessions for turn in session.turns]
        assert {tuple(getattr(turn.request, name) for name in CLASS_COLUMNS[:-1]) for turn in told} == {label}
        for name, values in trace.columns().items():
            if name not in CLASS_COLUMNS:
                assert np.array_equal(values, TALK.columns()[name], equal_nan=values.dtype == float)
    assert first.header.notes[-1].startswith("class online, priority -1, ttft_deadline_s 1.5, tbt_deadline_s 0.25, of ")
    assert again.header.notes[-1].startswith("class batch, priority 10, of ")


def test_what_serves_a_merged_trace_is_what_serves_its_parts() -> None:
    assert serves(merge([TALK, BUSY])) == "turns"
    calls = CALLS.columns()
    assert serves(Trace.from_columns(calls, generator="metronome+questions")) == "frames"


def test_looping_repeats_the_sessions_at_the_same_rate() -> None:
    thrice = loop(BUSY, 3)
    assert len(thrice) == 3 * len(BUSY)
    assert rate(starts(thrice)) == pytest.approx(rate(starts(BUSY)), rel=1e-3)
    assert loop(TALK, 2, 1000.0).header.notes[-1] == f"looped 2 times, every 1000 s, of {TALK.header.hash[:16]}"
    gaps = np.diff(starts(loop(TALK, 2)))
    assert gaps[len(TALK.sessions) - 1] == pytest.approx(starts(TALK)[0] + np.diff(starts(TALK)).mean(), abs=1e-5)


@settings(max_examples=40)
@given(share=st.floats(0.05, 1), factor=st.floats(1e-3, 1e3), seed=st.integers(0, 2**32), times=st.integers(1, 4))
def test_steps_make_valid_traces_that_repeat(share: float, factor: float, seed: int, times: int) -> None:
    def steps() -> Trace:
        return loop(scale_time(thin(TALK, share, seed), factor), times, period_s=1e6)

    try:
        result = steps()
    except UserError as error:
        assert "no session of 40 is left" in str(error)
        return
    assert result == steps()
    assert len(result.header.notes) == len(TALK.header.notes) + 3


def test_what_no_command_asks_for_is_refused() -> None:
    with pytest.raises(UserError, match="nothing to merge"):
        merge([])
    with pytest.raises(UserError, match="times must be at least 1, got 0"):
        loop(TALK, 0)
    with pytest.raises(UserError, match="period_s must be above 0 and finite, got 0"):
        loop(TALK, 2, 0.0)


VOICES = make_trace("voice", {"sessions": 25, "p": 0.5}, 3)


@pytest.mark.parametrize("workers", [1, 2, 10])
def test_shards_hold_whole_sessions_and_join_to_the_same_trace(workers: int) -> None:
    parts = shard(VOICES, workers)
    sessions = [session for part in parts for session in part.sessions]
    assert set(sessions) == set(VOICES.sessions)
    assert max(len(p.sessions) for p in parts) - min(len(p.sessions) for p in parts) <= 1
    assert join(parts[::-1]) == VOICES
    assert f"shard 1 of {workers} of {VOICES.header.hash}" in parts[0].header.notes


def test_more_workers_than_sessions() -> None:
    assert len(shard(make_trace("voice", {"sessions": 3}, 0), 10)) == 3


def test_shards_that_are_missing_or_of_another_trace_are_refused() -> None:
    parts = shard(VOICES, 3)
    for wrong in (parts[:2], [*parts[:2], shard(make_trace("voice", {"sessions": 25}, 4), 3)[2]], []):
        with pytest.raises(UserError, match="give"):
            join(wrong)
    with pytest.raises(UserError, match="workers must be at least 1, got 0"):
        shard(VOICES, 0)


def test_a_backlog_is_of_one_load_generator() -> None:
    trace = make_trace("co_serving", {"requests": 5, "backlog": 2, "backlog_tps": 100.0}, 0)
    assert len(shard(trace, 1)) == 1
    with pytest.raises(UserError, match="shards=2 would have several; leave shards out, or backlog"):
        shard(trace, 2)
