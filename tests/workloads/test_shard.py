"""A schedule dealt out to 1, 2 or 10 workers is the same process when their sends are put together."""

import numpy as np
import pytest

from workloads.errors import UserError
from workloads.registry import make_trace
from workloads.statistics.arrival_statistics import dispersion, gap_cv, lag_1
from workloads.transforms.shard import join, shard

TRACE = make_trace("poisson", {"requests": 20_000, "rate": 20}, 3)
TALK = make_trace("voice", {"sessions": 25, "p": 0.5}, 3)


@pytest.mark.parametrize("workers", [1, 2, 10])
def test_merged_arrivals_are_those_of_the_whole(workers: int) -> None:
    parts = shard(TRACE, workers)
    assert len(parts) == workers
    merged = np.sort(np.concatenate([part.columns()["arrival_s"] for part in parts]))
    assert np.array_equal(merged, TRACE.columns()["arrival_s"])
    assert gap_cv(merged) == pytest.approx(1, abs=0.03)
    assert abs(lag_1(merged) or 0) < 4 / np.sqrt(len(merged))
    assert dispersion(merged, 5.0) == pytest.approx(1, abs=4 * np.sqrt(2 / (merged[-1] / 5)))
    assert len(np.unique(np.diff(merged))) > 0.9 * len(merged)


@pytest.mark.parametrize("workers", [1, 2, 10])
def test_shards_hold_whole_sessions_and_join_to_the_same_trace(workers: int) -> None:
    parts = shard(TALK, workers)
    sessions = [session for part in parts for session in part.sessions]
    assert set(sessions) == set(TALK.sessions)
    assert max(len(p.sessions) for p in parts) - min(len(p.sessions) for p in parts) <= 1
    assert join(parts[::-1]) == TALK
    assert f"shard 1 of {workers} of {TALK.header.hash}" in parts[0].header.notes


def test_more_workers_than_sessions() -> None:
    assert len(shard(make_trace("voice", {"sessions": 3}, 0), 10)) == 3


def test_shards_that_are_missing_or_of_another_trace_are_refused() -> None:
    parts = shard(TALK, 3)
    for wrong in (parts[:2], [*parts[:2], shard(make_trace("voice", {"sessions": 25}, 4), 3)[2]], []):
        with pytest.raises(UserError, match="give"):
            join(wrong)
    with pytest.raises(UserError, match="workers must be at least 1, got 0"):
        shard(TALK, 0)


def test_a_pool_is_of_one_load_generator() -> None:
    trace = make_trace("co_serving", {"requests": 5, "pool": 2, "pool_tps": 100.0}, 0)
    assert len(shard(trace, 1)) == 1
    with pytest.raises(UserError, match="shards=2 would have several; leave shards out, or pool"):
        shard(trace, 2)
