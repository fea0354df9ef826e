"""A run ends when the turns that it judges have ended, and judges only these."""

from typing import Any

import numpy as np
import pytest

from harness.client.client_params import ClientParams
from harness.live.run.duration import SPARE, planned
from harness.live.run.duration import given as given_length
from harness.live.run.forecast import Phases
from harness.live.run.judged_turns import FORECAST_AFTER, JudgedTurns
from harness.live.run.run_progress import RunProgress
from harness.slo.targets import needed, parse_targets
from tests.live.scripted import typed


def status(t_s: float, begun_s: list[float], ended_s: list[tuple[float, float]]) -> dict[str, Any]:
    """What a shard has seen since its last status; `ended_s`: begins and ends of turns."""
    return {"t": t_s, "begun_s": begun_s, "ended_s": ended_s, "complete_s": [end_s for _, end_s in ended_s]}


def test_a_closed_loop_of_two_judges_from_the_second_end_of_a_turn() -> None:
    judged = JudgedTurns(n=1, shards=1, slots=2)
    judged.update(0, status(1.0, [0.0, 0.1], [(0.0, 0.5)]))
    assert judged.full_s is None
    judged.update(0, status(2.0, [0.5, 1.5], [(0.1, 1.5)]))
    assert judged.full_s == 1.5  # and so the turn of 1.5 s is judged
    judged.update(0, status(3.0, [2.5], [(1.5, 2.5)]))
    assert not judged.ended  # the turn of 0.5 s began before it and goes on
    judged.update(0, status(4.0, [], [(0.5, 3.5)]))
    assert judged.ended


def test_a_run_ends_when_every_shard_has_passed_the_last_judged_begin() -> None:
    judged = JudgedTurns(n=1, shards=2, slots=None)
    judged.update(0, status(1.0, [0.5], [(0.5, 0.9)]))
    assert not judged.ended
    judged.update(1, status(0.4, [], []))
    assert not judged.ended  # it may have begun one earlier
    judged.update(1, status(0.5, [], []))
    assert judged.ended


def short_turn(begin_s: float) -> dict[str, Any]:
    return status(begin_s + 1.0, [begin_s], [(begin_s, begin_s + 0.5)])


def test_the_end_of_a_run_is_forecast_from_ten_turns_on() -> None:
    judged = JudgedTurns(36, 1, None)
    for begin_s in range(FORECAST_AFTER):
        assert judged.end_s is None
        judged.update(0, short_turn(begin_s))
    assert judged.end_s == pytest.approx(36 * 0.9 + 0.5)  # ten turns in 9 s


def test_a_run_waits_for_a_hung_turn_that_it_judges_and_for_no_later_one() -> None:
    judged = JudgedTurns(2, 1, None)
    judged.update(0, status(1.0, [0.1, 0.2, 0.3], [(0.1, 0.9), (0.3, 0.8)]))
    assert not judged.ended  # the second one hangs
    judged.update(0, status(2.0, [1.5], [(0.2, 1.9)]))
    assert judged.ended


def test_the_progress_takes_the_forecast_from_the_pace_of_the_first_turns() -> None:
    progress = RunProgress(1, expected=Phases(10, 7, 0, 110, 5), judged=JudgedTurns(36, 1, None))
    counts = {"sessions": 1, "came": 1, "turns": 0, "failed": 0, "shed": 0, "ttfp_s": [], "continuity": [0, 0]}
    for begin_s in range(2 * FORECAST_AFTER):
        progress.update(0, {**counts, **short_turn(begin_s)})
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
