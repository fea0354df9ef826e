import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import starts
from tests.engines.replays import run
from workloads.distributions.speech import NETWORK_CV, SPEECH_RATE_SIGMA, SPEECH_S_PER_TOKEN
from workloads.errors import UserError
from workloads.generators.dialogues import cut_history
from workloads.generators.revisit import RevisitParams, pressure
from workloads.registry import make_trace
from workloads.statistics.describe import gap_cv, rate

SYNTHETIC = ["poisson", "gamma", "voice"]


CALLS = ["voice", "speech", "duplex"]


@pytest.mark.parametrize("name", CALLS)
@given(think_s=st.floats(0, 5), seed=st.integers(0, 3))
@settings(max_examples=8)
def test_think_s_is_the_median_pause_in_every_workload_of_calls(name: str, think_s: float, seed: int) -> None:
    columns = make_trace(name, {"sessions": 400, "think_s": think_s}, seed).columns()
    later = columns["turn"] > 0
    assert np.median(columns["think_s"][later]) == pytest.approx(think_s, rel=0.1, abs=1e-6)
    assert np.isnan(columns["think_s"][~later]).all()


@pytest.mark.parametrize("name", ["poisson", "gamma", "voice", "speech"])
def test_barge_ins_are_nested_in_p_and_change_nothing_else(name: str) -> None:
    size = {"sessions": 500} if name in CALLS else {"requests": 1500}
    traces = {p: make_trace(name, {"p": p, **size}, 2).columns() for p in (0.0, 0.3, 0.7, 1.0)}
    cuts = {p: columns.pop("barge_in_after_s") for p, columns in traces.items()}
    for low, high in pairwise(traces):
        drawn = ~np.isnan(cuts[low])
        assert np.array_equal(cuts[low][drawn], cuts[high][drawn])
        assert pd.DataFrame(traces[low]).equals(pd.DataFrame(traces[high]))
    for p, cut in cuts.items():
        assert abs(np.mean(~np.isnan(cut)) - p) <= 4 * np.sqrt(p * (1 - p) / len(cut))


@pytest.mark.parametrize("name", SYNTHETIC)
def test_cuts_follow_the_reply_durations_but_not_the_own_reply(name: str) -> None:
    size = {"sessions": 1500} if name == "voice" else {"requests": 4000}
    columns = make_trace(name, {"p": 1.0, **size}, 3).columns()
    cuts, replies = np.log(columns["barge_in_after_s"]), np.log(columns["reply_audio_s"])
    assert np.median(cuts) == pytest.approx(np.median(replies), abs=0.1)
    assert cuts.std() == pytest.approx(replies.std(), rel=0.1)
    assert abs(np.corrcoef(cuts, replies)[0, 1]) < 4 / np.sqrt(len(cuts))


@pytest.mark.parametrize("name", SYNTHETIC)
def test_rate_moves_arrivals_only(name: str) -> None:
    slow, fast = (make_trace(name, {"rate": rate}, 4).columns() for rate in (1, 2))
    assert np.allclose(slow.pop("arrival_s"), 2 * fast.pop("arrival_s"), atol=1e-5, equal_nan=True)
    assert pd.DataFrame(slow).equals(pd.DataFrame(fast))


def test_voice_sessions_are_dialogues() -> None:
    columns = make_trace("voice", {"sessions": 2000}, 0).columns()
    opening = columns["turn"] == 0
    assert opening.sum() == 2000 and len(opening) / 2000 == pytest.approx(3, rel=0.1)
    assert np.array_equal(np.isnan(columns["arrival_s"]), ~opening)
    assert np.array_equal(np.isnan(columns["think_s"]), opening)
    medians = [np.nanmedian(columns[name]) for name in ("think_s", "audio_s", "output_tokens")]
    assert medians == pytest.approx([1.0, 3.0, 60], rel=0.1)
    assert columns["output_tokens"].min() >= 8 and columns["output_tokens"].max() <= 512
    assert set(make_trace("voice", {"turns": 1, "sessions": 300}, 0).columns()["turn"]) == {0}


def test_a_session_keeps_its_rate_of_speech_and_its_network() -> None:
    columns = make_trace("voice", {"sessions": 1000, "network_ms": 5}, 0).columns()
    first, rate = columns["turn"] == 0, columns["reply_audio_s"] / columns["output_tokens"]
    rates, delays = rate[first], columns["network_s"][first]
    assert np.allclose(rate, rates[np.cumsum(first) - 1], atol=1e-6)
    assert np.median(rates) == pytest.approx(SPEECH_S_PER_TOKEN, rel=0.02)
    assert np.log(rates).std() == pytest.approx(SPEECH_RATE_SIGMA, rel=0.1)
    assert delays.mean() == pytest.approx(0.005, rel=0.1)
    assert delays.std() == pytest.approx(0.005 * NETWORK_CV, rel=0.15)


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


def test_interactive_users_in_an_open_loop_come_after_their_pause_whatever_the_server_does() -> None:
    closed = make_trace("interactive", {}, 0).columns()
    open_ = make_trace("interactive", {"loop": "open"}, 0).columns()
    later = closed["turn"] > 0
    gaps = open_["arrival_s"][later] - np.roll(open_["arrival_s"], 1)[later]
    assert np.allclose(gaps, closed["think_s"][later], atol=1e-4)


def test_an_opening_turn_takes_the_context_out_of_the_first_spoken_one() -> None:
    users = {"sessions": 50, "turns": 3, "modality": "audio", "reply": "speech", "opening_tokens": 9000, "p": 0.5}
    together = make_trace("interactive", users, 0).columns()
    apart = make_trace("interactive", users | {"opening_turn": True}, 0).columns()
    first = apart["turn"] == 0
    assert np.array_equal(apart["arrival_s"][first], together["arrival_s"][together["turn"] == 0])
    for name, value in (("input_tokens", 9000), ("visual_tokens", 9000), ("output_tokens", 1), ("modality", "text")):
        assert set(apart[name][first]) == {value}
    assert np.isnan(apart["reply_audio_s"][first]).all() and np.isnan(apart["arrival_s"][~first]).all()
    for name in ("session", "audio_s", "output_tokens", "reply_audio_s", "barge_in_after_s", "network_s"):
        assert np.array_equal(apart[name][~first], together[name], equal_nan=True)
    assert np.array_equal(apart["input_tokens"][~first], together["input_tokens"] - together["visual_tokens"])
    assert not np.isnan(apart["think_s"][~first]).any()


@pytest.mark.parametrize(
    ("settings", "fix"),
    [
        ({}, "set opening_tokens too"),
        ({"opening_tokens": 100, "loop": "open"}, "set loop=closed"),
        ({"opening_tokens": 100, "max_history_tokens": 500}, "leave max_history_tokens out"),
    ],
)
def test_an_opening_turn_needs_a_context_and_users_who_wait(settings: dict[str, Any], fix: str) -> None:
    with pytest.raises(UserError, match=fix):
        make_trace("interactive", {"opening_turn": True, **settings}, 0)


def test_a_conversation_that_grows_too_long_is_cut_and_sent_anew() -> None:
    trace = make_trace("interactive", {"max_history_tokens": 1000}, 0)
    columns = trace.columns()
    assert columns["history_tokens"].max() <= 1000
    again = (columns["turn"] > 0) & (columns["history_tokens"] == 0)
    assert (columns["input_tokens"][again] > 500).all()
    assert f"{again.sum()} turns after the older half was dropped, of 1000" in trace.header.notes
    with pytest.raises(UserError, match="set modality=text or leave it out"):
        make_trace("interactive", {"max_history_tokens": 1000, "modality": "audio", "reply": "speech"}, 0)


@pytest.mark.parametrize(
    ("most", "inputs", "history"),
    [(100, [10, 10, 10, 60], [0, 50, 100, 0]), (99, [10, 10, 59, 10], [0, 50, 0, 99]), (0, [10] * 4, [0] * 4)],
)
def test_history_grows_until_it_is_cut(most: int, inputs: list[int], history: list[int]) -> None:
    found = cut_history(np.full(4, 10), np.full(4, 40), np.arange(4), most=most)
    assert [each.tolist() for each in found] == [inputs, history]


def test_revisit_users_come_back_in_the_order_in_which_they_came() -> None:
    trace = make_trace("revisit", {"fillers": 2, "rounds": 2, "gap_s": 10, "speech_s": 3}, 0)
    rows = pd.DataFrame(trace.columns()).sort_values("arrival_s", kind="stable")
    first_round = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]  # session, turn
    second_round = [(session + 3, turn) for session, turn in first_round]
    assert list(zip(rows["session"], rows["turn"], strict=True)) == first_round + second_round
    assert set(np.diff(rows["arrival_s"])) == {10}
    assert set(rows["input_tokens"][rows["turn"] == 0]) == {36_000}
    assert set(rows["audio_s"][rows["turn"] == 1]) == {3.0}
    assert set(rows["reply_audio_s"]) == {5.6}


@given(replicas=st.integers(1, 8), fillers=st.integers(0, 5), rounds=st.integers(1, 3))
def test_all_sessions_lead_to_the_first_replica(replicas: int, fillers: int, rounds: int) -> None:
    trace = make_trace("revisit", {"replicas": replicas, "fillers": fillers, "rounds": rounds}, 0)
    ids = np.unique(trace.columns()["session"])
    assert len(ids) == rounds * (1 + fillers)
    assert not (ids % replicas).any()


@pytest.mark.parametrize(("blocks", "comes_back"), [(700, True), (300, False)])
def test_the_target_s_context_is_still_there_only_without_pressure(blocks: int, comes_back: bool) -> None:
    """Where the pool holds everything, the second turn computes what is new; where not, what was evicted as well."""
    sizes = {"history_tokens": 2000, "filler_tokens": 2000, "fillers": 3, "gap_s": 8}
    held = pressure(RevisitParams.model_validate(sizes), blocks)
    assert held == pytest.approx((8000 + 4 * 20) / (16 * (blocks - 1))) and (held <= 1) == comes_back
    steps = run(make_trace("revisit", sizes, 0), "vllm_omni_wo", server={"kv_pool_blocks": blocks}).steps.to_pandas()
    computed = steps.query("stage == 'thinker' and t_s > 4 * 8")["prefill_tokens"].sum()
    said = 4 * 52  # four times 4 s of speech at 13 tokens a second
    assert (computed < said + 4 * 40) == comes_back


def episodes(**params: Any) -> dict[str, np.ndarray]:
    return make_trace("gui_episodes", {"episodes": 2000, **params}, 0).columns()


def test_an_episode_is_a_loop_of_steps_that_the_agent_closes() -> None:
    columns = episodes()
    first = columns["turn"] == 0
    assert np.bincount(columns["session"]).mean() == pytest.approx(5.6, rel=0.05)
    assert np.isnan(columns["arrival_s"][~first]).all()
    think_s = columns["think_s"][~first]
    assert think_s.min() >= 2 and think_s.max() <= 8
    assert np.median(think_s) == pytest.approx(3.0, rel=0.03)


def test_the_prompt_of_a_step_has_the_chosen_part_of_the_steps_before() -> None:
    actions, nothing, everything = (episodes(**how) for how in ({}, {"history": "none"}, {"history": "all"}))
    second = np.flatnonzero(actions["turn"] == 1)
    before = {name: actions[name][second - 1] for name in ("input_tokens", "output_tokens")}
    assert (actions["input_tokens"][second] == before["input_tokens"] + before["output_tokens"]).all()
    assert set(actions["history_tokens"]) == {0}  # each screenshot is new, so no prefix is reused
    assert (nothing["input_tokens"][second] == before["input_tokens"]).all()
    assert set(everything["input_tokens"][second]) == {1600}
    assert np.isnan(everything["history_tokens"]).all()
    for name in ("session", "turn", "output_tokens", "think_s"):
        assert np.array_equal(actions[name], nothing[name], equal_nan=True)


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
    rows = [{"episode_id": n, "goal": "g" * 40, "actions": [{"action_type": "click"}] * (n + 1)} for n in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"goal": "", "actions": []}]))
    with pytest.raises(UserError, match=r"line 4, column 'goal': '' is empty; correct or remove this line"):
        make_trace("gui_episodes", {"path": str(path)}, 0)
    for name in ("gui", "gui_episodes"):
        trace = make_trace(name, {"path": str(path), "skip_bad": True}, 0)
        columns = trace.columns()
        assert set(columns["input_tokens"][columns["turn"] == 0]) == {1610}
        assert "1 of 4 lines skipped: 'goal' is empty" in trace.header.notes
    assert set(np.bincount(columns["session"])) == {1, 2, 3}
