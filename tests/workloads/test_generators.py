"""Generators: sessions that grow, users who come back for their history, GUI agents, and the rest."""

import json
from dataclasses import replace
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
from workloads.generators.dialogues import cut_history, number_turns, sum_before
from workloads.generators.revisit import RevisitParams, pressure
from workloads.registry import make_trace
from workloads.statistics.describe import describe, gap_cv, rate
from workloads.trace import Trace

SYNTHETIC = ["poisson", "gamma", "voice"]


def without_barge_in(trace: Trace) -> list:
    return [replace(turn, barge_in_after_s=None) for session in trace.sessions for turn in session.turns]


CALLS = ["voice", "speech", "duplex"]


@pytest.mark.parametrize("name", CALLS)
@given(think_s=st.floats(0, 5), seed=st.integers(0, 3))
@settings(max_examples=8)
def test_one_name_sets_the_pause_in_every_workload_of_calls(name: str, think_s: float, seed: int) -> None:
    columns = make_trace(name, {"sessions": 400, "think_s": think_s}, seed).columns()
    later = columns["turn"] > 0
    assert np.median(columns["think_s"][later]) == pytest.approx(think_s, rel=0.1, abs=1e-6)
    assert np.isnan(columns["think_s"][~later]).all()


def test_a_pause_changes_neither_the_turns_nor_the_overlaps() -> None:
    people, asked = (
        make_trace("speech", {"sessions": 400, "p": 0.3, "overlap": 0.4, **more}, 0).columns()
        for more in ({}, {"think_s": 2.0})
    )
    pauses = people.pop("think_s"), asked.pop("think_s")
    assert pd.DataFrame(people).equals(pd.DataFrame(asked))
    early = [np.isnan(each) | (each == 0) for each in pauses]
    assert np.array_equal(*early) and early[0].mean() > 0.3
    assert np.median(pauses[1][~early[1]]) == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize("name", SYNTHETIC)
def test_barge_ins_are_nested_in_p_and_change_nothing_else(name: str) -> None:
    size = {"sessions": 500} if name == "voice" else {"requests": 1500}
    traces = {p: make_trace(name, {"p": p, **size}, 2) for p in (0.0, 0.3, 0.7, 1.0)}
    cuts = {p: trace.columns()["barge_in_after_s"] for p, trace in traces.items()}
    assert np.isnan(cuts[0.0]).all()
    assert not np.isnan(cuts[1.0]).any()
    for low, high in ((0.0, 0.3), (0.3, 0.7), (0.7, 1.0)):
        drawn = ~np.isnan(cuts[low])
        assert np.array_equal(cuts[low][drawn], cuts[high][drawn])
        assert without_barge_in(traces[low]) == without_barge_in(traces[high])
        share = np.mean(~np.isnan(cuts[low]))
        assert abs(share - low) <= 4 * np.sqrt(low * (1 - low) / len(drawn))


@pytest.mark.parametrize("name", SYNTHETIC)
def test_cuts_follow_the_reply_durations_but_not_the_own_reply(name: str) -> None:
    size = {"sessions": 1500} if name == "voice" else {"requests": 4000}
    columns = make_trace(name, {"p": 1.0, **size}, 3).columns()
    cuts, replies = columns["barge_in_after_s"], columns["reply_audio_s"]
    assert np.median(cuts) == pytest.approx(np.median(replies), rel=0.1)
    assert np.log(cuts).std() == pytest.approx(np.log(replies).std(), rel=0.1)
    assert abs(np.corrcoef(np.log(cuts), np.log(replies))[0, 1]) < 4 / np.sqrt(len(cuts))


@pytest.mark.parametrize("name", SYNTHETIC)
def test_rate_moves_arrivals_only(name: str) -> None:
    slow, fast = make_trace(name, {"rate": 1}, 4), make_trace(name, {"rate": 2}, 4)
    for column, values in slow.columns().items():
        other = fast.columns()[column]
        if column == "arrival_s":
            assert np.allclose(values, 2 * other, atol=1e-5, equal_nan=True)
        else:
            assert np.array_equal(values, other, equal_nan=values.dtype == float)


def test_length_parameters_reach_the_trace_and_its_notes() -> None:
    params = {"modality": "text", "prompt_tokens": 500, "prompt_sigma": 0, "reply_tokens": 40, "reply_sigma": 0}
    trace = make_trace("poisson", params, 0)
    assert set(trace.columns()["input_tokens"]) == {500}
    assert set(trace.columns()["output_tokens"]) == {40}
    assert "prompts: lognormal median 500, sigma 0" in trace.header.notes[0]
    assert make_trace("poisson", {"max_reply_tokens": 30}, 0).columns()["output_tokens"].max() == 30


def test_voice_sessions_are_dialogues() -> None:
    trace = make_trace("voice", {"sessions": 2000}, 0)
    columns = trace.columns()
    counts = np.array([len(session.turns) for session in trace.sessions])
    assert len(counts) == 2000
    assert counts.mean() == pytest.approx(3, rel=0.1)
    opening = columns["turn"] == 0
    assert np.array_equal(np.isnan(columns["arrival_s"]), ~opening)
    assert np.array_equal(np.isnan(columns["think_s"]), opening)
    assert np.nanmedian(columns["think_s"]) == pytest.approx(1.0, rel=0.1)
    assert np.median(columns["audio_s"]) == pytest.approx(3.0, rel=0.05)
    assert np.median(columns["output_tokens"]) == pytest.approx(60, rel=0.05)
    assert columns["output_tokens"].min() >= 8
    assert columns["output_tokens"].max() <= 512


def test_one_turn_is_exactly_one() -> None:
    trace = make_trace("voice", {"turns": 1, "sessions": 300}, 0)
    assert [len(session.turns) for session in trace.sessions] == [1] * 300


def test_a_session_keeps_its_rate_of_speech_and_its_network() -> None:
    trace = make_trace("voice", {"sessions": 1000, "network_ms": 5}, 0)
    rates, delays = [], []
    for session in trace.sessions:
        rate = [turn.reply_audio_s / turn.output_tokens for turn in session.turns]
        assert np.ptp(rate) < 1e-6
        rates.append(rate[0])
        delays.append(session.turns[0].network_s)
    assert np.median(rates) == pytest.approx(SPEECH_S_PER_TOKEN, rel=0.02)
    assert np.log(rates).std() == pytest.approx(SPEECH_RATE_SIGMA, rel=0.1)
    assert np.mean(delays) == pytest.approx(0.005, rel=0.1)
    assert np.std(delays) == pytest.approx(0.005 * NETWORK_CV, rel=0.15)


def test_describe_counts_and_leaves_unknowns_none() -> None:
    summary = describe(make_trace("voice", {"sessions": 400, "p": 0.4}, 0))
    assert summary["sessions"] == 400
    assert summary["turns"] == pytest.approx(400 * summary["turns_per_session_mean"])
    assert summary["arrival_rate_per_s"] == pytest.approx(2, rel=0.15)
    assert summary["barge_in_share"] == pytest.approx(0.4, abs=0.06)
    silent = describe(make_trace("poisson", {"requests": 1, "modality": "text", "reply": "text"}, 0))
    for name in ("arrival_rate_per_s", "arrival_gap_cv", "audio_s_total", "reply_audio_s_total", "barge_in_share"):
        assert silent[name] is None


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


def test_history_grows_until_it_is_cut() -> None:
    new, replies, turn = np.array([10, 10, 10, 10]), np.array([40, 40, 40, 40]), np.arange(4)
    inputs, history = cut_history(new, replies, turn, most=120)
    assert history.tolist() == [0, 50, 100, 0]
    assert inputs.tolist() == [10, 10, 10, 70]
    session, turn = number_turns(np.array([2, 3]))
    assert (session.tolist(), turn.tolist()) == ([0, 0, 1, 1, 1], [0, 1, 0, 1, 2])
    assert sum_before(np.array([1, 2, 3, 4, 5]), turn).tolist() == [0, 1, 0, 3, 7]


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
    steps = run(make_trace("revisit", sizes, 0), "vllm_omni_wo", server={"kv_pool_blocks": blocks}).steps.to_pandas()
    returns = steps.query("stage == 'thinker' and t_s > 4 * 8")
    computed = returns["prefill_tokens"].sum()
    said = 4 * 52  # four times 4 s of speech at 13 tokens a second
    assert (computed < said + 4 * 40) == comes_back


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
    assert (own["input_tokens"][second] == own["input_tokens"][second - 1] + own["output_tokens"][second - 1]).all()
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
