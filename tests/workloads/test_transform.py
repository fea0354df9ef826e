from collections.abc import Callable
from dataclasses import astuple

import numpy as np
import pandas as pd
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
VOICES, OTHERS = (make_trace("voice", {"sessions": 25, "p": 0.5}, seed) for seed in (3, 4))
BACKLOG = make_trace("co_serving", {"requests": 5, "backlog": 2, "backlog_tps": 100.0}, 0)


def test_a_thinned_poisson_process_is_one() -> None:
    times = starts(thin(BUSY, 0.3, seed=5))
    assert rate(times) == pytest.approx(6, rel=0.05)
    assert gap_cv(times) == pytest.approx(1, abs=0.05)
    assert dispersion(times, 5.0) == pytest.approx(1, abs=4 * np.sqrt(2 / (times[-1] / 5)))


def test_thinning_keeps_whole_sessions_and_says_how_many() -> None:
    few = thin(TALK, 0.5, seed=1)
    assert set(few.sessions) < set(TALK.sessions)
    assert few == thin(TALK, 0.5, seed=1) != thin(TALK, 0.5, seed=2)
    note = f"thinned to 0.5 (seed 1): {len(few.sessions)} of 40 sessions, of {TALK.header.hash[:16]}"
    assert few.header.notes[-1] == note


def test_scaling_time_moves_arrivals_only() -> None:
    slow = scale_time(TALK, 2.0)
    before, after = TALK.columns(), slow.columns()
    assert np.allclose(after.pop("arrival_s"), 2 * before.pop("arrival_s"), equal_nan=True)
    assert pd.DataFrame(after).equals(pd.DataFrame(before))
    assert slow.header.notes[-1].startswith("arrivals times 2, of ")


def test_a_cut_keeps_the_sessions_that_begin_in_it() -> None:
    first, last = starts(TALK)[10], starts(TALK)[20]
    part = cut(TALK, first, last)
    assert len(part.sessions) == 10
    assert starts(part)[0] == 0
    assert part.header.notes[-1].endswith(f"10 of 40 sessions, of {TALK.header.hash[:16]}")


def test_merging_keeps_where_sessions_came_from_and_what_serves_them() -> None:
    both = merge([TALK, BUSY])
    assert np.array_equal(starts(both), np.sort(np.concatenate([starts(TALK), starts(BUSY)])))
    assert (both.header.generator, serves(both)) == ("voice+poisson", "turns")
    assert [part["hash"] for part in both.header.params["merged"]] == [TALK.header.hash, BUSY.header.hash]
    assert both.header.notes[0].startswith("voice: replies: ")
    frames = make_trace("metronome", {}, 0).columns()
    assert serves(Trace.from_columns(frames, generator="metronome+questions")) == "frames"


@settings(max_examples=40)
@given(parts=st.lists(turns_of_a_trace(), min_size=1, max_size=3))
def test_merging_keeps_every_session_in_its_class_under_a_new_number(parts: list[list[Turn]]) -> None:
    def without_numbers(trace: Trace) -> list[list[str]]:
        return [sorted(repr(astuple(turn)[1:]) for turn in session.turns) for session in trace.sessions]

    traces = [Trace.from_turns(part) for part in parts]
    merged = merge(traces)
    assert sorted(session.id for session in merged.sessions) == [*range(len(merged.sessions))]
    assert sorted(without_numbers(merged)) == sorted(session for trace in traces for session in without_numbers(trace))


def test_a_class_replaces_the_one_before_and_changes_nothing_else() -> None:
    first = classify(TALK, "online", priority=-1, ttft_deadline_s=1.5, tbt_deadline_s=0.25)
    again = classify(first, "batch", priority=10)
    unlabelled = pd.DataFrame(TALK.columns()).drop(columns=list(CLASS_COLUMNS))
    for trace, label in ((first, ("online", -1, 1.5, 0.25)), (again, ("batch", 10, None, None))):
        requests = [turn.request for session in trace.sessions for turn in session.turns]
        assert {tuple(getattr(each, name) for name in CLASS_COLUMNS[:-1]) for each in requests} == {label}
        assert pd.DataFrame(trace.columns()).drop(columns=list(CLASS_COLUMNS)).equals(unlabelled)
    assert first.header.notes[-1].startswith("class online, priority -1, ttft_deadline_s 1.5, tbt_deadline_s 0.25, of ")
    assert again.header.notes[-1].startswith("class batch, priority 10, of ")


def test_looping_repeats_the_sessions_at_the_same_rate() -> None:
    thrice = loop(BUSY, 3)
    assert len(thrice) == 3 * len(BUSY)
    assert rate(starts(thrice)) == pytest.approx(rate(starts(BUSY)), rel=1e-3)
    assert loop(TALK, 2, 1000.0).header.notes[-1] == f"looped 2 times, every 1000 s, of {TALK.header.hash[:16]}"
    gaps = np.diff(starts(loop(TALK, 2)))
    assert gaps[len(TALK.sessions) - 1] == pytest.approx(starts(TALK)[0] + np.diff(starts(TALK)).mean(), abs=1e-5)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: merge([]), "nothing to merge"),
        (lambda: thin(TALK, 1.001), "share must be above 0 and at most 1, got 1.001"),
        (lambda: thin(TALK, 1e-9), "no session of 40 is left at share=1e-09; choose a larger one"),
        (lambda: scale_time(TALK, 0.0), "factor must be above 0 and finite, got 0"),
        (lambda: loop(TALK, 2, 0.0), "period_s must be above 0 and finite, got 0"),
        (lambda: shard(VOICES, 0), "workers must be at least 1, got 0"),
        (lambda: join([]), "give"),
        (lambda: join(shard(VOICES, 3)[:2]), "give"),
        (lambda: join([*shard(VOICES, 3)[:2], shard(OTHERS, 3)[2]]), "give"),
        (lambda: shard(BACKLOG, 2), "shards=2 would have several; leave shards out, or backlog"),
    ],
)
def test_a_step_that_cannot_be_done_is_refused(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        call()
    assert len(shard(BACKLOG, 1)) == 1


@pytest.mark.parametrize(("workers", "parts"), [(1, 1), (2, 2), (10, 10), (26, 25)])
def test_shards_hold_whole_sessions_and_join_to_the_same_trace(workers: int, parts: int) -> None:
    shards = shard(VOICES, workers)
    assert {session for each in shards for session in each.sessions} == set(VOICES.sessions)
    sizes = [len(each.sessions) for each in shards]
    assert len(sizes) == parts and max(sizes) - min(sizes) <= 1
    assert join(shards[::-1]) == VOICES
    assert f"shard 1 of {workers} of {VOICES.header.hash}" in shards[0].header.notes
