"""Agents that look at a screen and act: single requests, and episodes of them."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.workloads.session_starts import starts
from workloads.errors import UserError
from workloads.registry import make_trace
from workloads.statistics.arrival_statistics import gap_cv, rate


def test_phone_agents_see_a_screen_and_act() -> None:
    trace = make_trace("gui", {"requests": 2000}, 0)
    columns = trace.columns()
    assert set(columns["visual_tokens"]) == {1600}
    assert (columns["output_tokens"].min(), columns["output_tokens"].max()) >= (30, 60)
    assert columns["output_tokens"].max() <= 80
    assert rate(starts(trace)) == pytest.approx(0.5, rel=0.1)


def test_an_episode_is_a_loop_of_steps_that_the_agent_closes() -> None:
    def made(**params: object) -> dict[str, np.ndarray]:
        return make_trace("gui_episodes", {"episodes": 2000, **params}, 0).columns()

    own = made()
    first = own["turn"] == 0
    assert np.bincount(own["session"]).mean() == pytest.approx(5.6, rel=0.05)
    assert np.isnan(own["arrival_s"][~first]).all() and np.isnan(own["think_s"][first]).all()
    assert own["think_s"][~first].min() >= 2 and own["think_s"][~first].max() <= 8
    assert np.median(own["think_s"][~first]) == pytest.approx(3.0, rel=0.03)
    # A prompt has the actions before it; each screenshot is new, so that nothing of the last prompt is reused.
    second = np.flatnonzero(own["turn"] == 1)
    assert (
        own["input_tokens"][second] == own["input_tokens"][second - 1] + own["output_tokens"][second - 1]
    ).all()
    assert set(own["history_tokens"]) == {0}
    # Who changes what a step shows changes no task, and no time.
    alone, whole = made(history="none"), made(history="all")
    for name in ("session", "turn", "output_tokens", "think_s"):
        assert np.array_equal(own[name], alone[name], equal_nan=True)
    assert (alone["input_tokens"][second] == alone["input_tokens"][second - 1]).all()
    assert set(whole["input_tokens"][second]) == {1600} and np.isnan(whole["history_tokens"]).all()


@pytest.mark.parametrize("mean", [1, 4.8, 15.3])
def test_episodes_take_as_many_steps_as_asked_for(mean: float) -> None:
    steps = np.bincount(make_trace("gui_episodes", {"episodes": 4000, "steps": mean}, 0).columns()["session"])
    assert steps.min() >= 1 and steps.mean() == pytest.approx(mean, rel=0.05)


def test_tasks_come_singly_or_in_bursts() -> None:
    def cv(**params: object) -> float:
        times = starts(make_trace("gui_episodes", {"episodes": 5000, "rate": 2, **params}, 0))
        assert rate(times) == pytest.approx(2, rel=0.25)
        return gap_cv(times) or 0

    assert cv() == pytest.approx(1, rel=0.1)
    assert cv(arrivals="gamma", cv=3) == pytest.approx(3, rel=0.2)
    assert cv(arrivals="burstgpt") > 1.7
    with pytest.raises(UserError, match="cv=3 is for arrivals=gamma, not poisson; leave it out"):
        cv(cv=3)


def test_recorded_episodes_are_played(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    rows = [
        {"episode_id": n, "goal": "g" * 40, "actions": [{"action_type": "click"}] * (n + 1)} for n in range(3)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"goal": "", "actions": []}]))
    with pytest.raises(UserError, match=r"line 4, column 'goal': '' is empty; correct or remove this line"):
        make_trace("gui_episodes", {"path": str(path)}, 0)
    for name in ("gui", "gui_episodes"):
        trace = make_trace(name, {"path": str(path), "skip_bad": True}, 0)
        columns = trace.columns()
        assert set(columns["input_tokens"][columns["turn"] == 0]) == {1610}
        assert "1 of 4 lines skipped: 'goal' is empty" in trace.header.notes
    assert set(np.bincount(columns["session"])) == {1, 2, 3}
