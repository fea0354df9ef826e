"""A run ends when the turns that it judges have ended, and judges only these."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.client.client_params import ClientParams
from harness.live.run.duration import SPARE, planned
from harness.live.run.duration import given as given_length
from harness.live.run.forecast import Phases
from harness.live.run.judged_turns import FORECAST_AFTER, JudgedTurns
from harness.live.run.run_progress import RunProgress
from harness.request_tables.steady_window import DRAIN, RAMP, STEADY, Load, phases, steady_window
from harness.slo.targets import needed, parse_targets
from tests.live.scripted import typed


def played(answers_s: list[float], users: int) -> pd.DataFrame:
    """A row for each turn. Users arrive at 0, 0.1, 0.2 .. s, speak for 0.5 s and go on at once; each answer goes to the
    user who is free first."""
    free_s, rows = [0.1 * user for user in range(users)], []
    turns = [0] * users
    for answer_s in answers_s:
        user = int(np.argmin(free_s))
        begin_s = free_s[user]
        end_s = begin_s + 0.5 + answer_s
        rows.append((user, turns[user], begin_s, begin_s + 0.5, end_s))
        turns[user] += 1
        free_s[user] = end_s
    return pd.DataFrame(rows, columns=["session", "turn", "turn_start_s", "turn_end_s", "end_s"])


def statuses(rows: pd.DataFrame, shards: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """A status a second of each shard, in order of time."""
    times = [
        rows.loc[rows["session"] % shards == shard, ["turn_start_s", "end_s"]].to_numpy() for shard in range(shards)
    ]
    for second in range(1, int(max(rows["end_s"])) + 2):
        for shard, (begin_s, end_s) in enumerate(each.T for each in times):
            begun = (second - 1 <= begin_s) & (begin_s < second)
            over = (second - 1 <= end_s) & (end_s < second)
            ended = {"ended_s": times[shard][over].tolist(), "complete_s": end_s[over].tolist()}
            yield shard, {"t": second, "begun_s": begin_s[begun].tolist(), **ended}


@given(st.lists(st.floats(0.01, 30), min_size=1, max_size=80), st.integers(1, 6), st.integers(1, 3), st.integers(1, 20))
def test_every_judged_turn_has_ended_when_the_run_is_over(
    answers_s: list[float], users: int, shards: int, n: int
) -> None:
    rows = played(answers_s, users)
    shards = min(shards, users)
    judged = JudgedTurns(n, shards, users)
    for shard, status in statuses(rows, shards):
        judged.update(shard, status)
        if judged.ended:
            break
    over_s = max(status for status in judged._known_s.values())
    begun = rows.loc[rows["turn_start_s"] < over_s].assign(
        status="completed", ended_s=rows["end_s"].where(rows["end_s"] < over_s)
    )
    planned = pd.DataFrame({"session": np.arange(1000) % (users + 1), "turn": np.arange(1000) // (users + 1)})
    window = steady_window(begun, planned, Load(slots=users, judged=n))
    phase = phases(begun, window)
    if judged.ended:
        assert window.by_begin and (phase == STEADY).sum() == n
        assert (begun.loc[phase == STEADY, "end_s"] < over_s).all()
        assert (begun.loc[phase == DRAIN, "turn_start_s"] > begun.loc[phase == STEADY, "turn_start_s"].max()).all()
        assert (begun.loc[phase == RAMP, "turn_end_s"] < window.begin_s).all()


def ended(begin_s: float) -> dict[str, Any]:
    """The status of a shard whose turn lasted half a second."""
    end_s = begin_s + 0.5
    return {"t": begin_s + 1.0, "begun_s": [begin_s], "ended_s": [(begin_s, end_s)], "complete_s": [end_s]}


def test_the_end_of_a_run_is_forecast_from_ten_turns_on() -> None:
    judged = JudgedTurns(36, 1, None)
    for begin_s in range(FORECAST_AFTER):
        assert judged.end_s is None
        judged.update(0, ended(begin_s))
    assert judged.end_s == pytest.approx(36 * 0.9 + 0.5)  # ten turns in 9 s


def test_a_run_waits_for_a_hung_turn_that_it_judges_and_for_no_later_one() -> None:
    judged = JudgedTurns(2, 1, None)
    begun = {"begun_s": [0.1, 0.2, 0.3], "ended_s": [(0.1, 0.9), (0.3, 0.8)], "complete_s": [0.8, 0.9]}
    judged.update(0, {"t": 1.0, **begun})
    assert not judged.ended  # the second one hangs
    judged.update(0, {"t": 2.0, "begun_s": [1.5], "ended_s": [(0.2, 1.9)], "complete_s": [1.9]})
    assert judged.ended


def test_the_progress_takes_the_forecast_from_the_pace_of_the_first_turns() -> None:
    progress = RunProgress(1, expected=Phases(10, 7, 0, 110, 5), judged=JudgedTurns(36, 1, None))
    status = {"sessions": 1, "came": 1, "turns": 0, "failed": 0, "shed": 0, "ttfp_s": [], "continuity": [0, 0]}
    for begin_s in range(2 * FORECAST_AFTER):
        progress.update(0, {**status, **ended(begin_s)})
    assert progress.forecast is not None and progress.expected is progress.forecast
    assert progress.forecast.run_s == pytest.approx(36, abs=5)


def test_a_run_judges_as_many_turns_as_its_targets_need_and_some_to_spare() -> None:
    def users(seconds: float):  # a turn a second
        trace = typed(sessions=int(seconds), arrival_s=np.arange(int(seconds), dtype=float))
        return trace, ClientParams.model_validate({"stop_after_s": seconds})

    for text, judged in (("ttft_p90<=2s", 55), ("ttft_p90<=2s failed<=1%", 55), ("ttft_p99<=2s", 560)):
        targets = parse_targets(text)
        duration = planned(users, targets, 1)
        assert duration.judged == judged >= SPARE * (needed(targets[0]) or 0)
        assert planned(users, targets, 5).judged == pytest.approx(judged / 5, abs=1)
    assert planned(users, parse_targets("ttft_p90<=2s completed_rps>=1"), 1).judged is None
    assert given_length(30, users, parse_targets("ttft_p90<=2s"), 1).judged is None
