"""The synthetic workloads: poisson, gamma and voice."""

from dataclasses import replace

import numpy as np
import pytest

from tests.golden.pinned import check_trace
from workloads.distributions.speech import NETWORK_CV, SPEECH_RATE_SIGMA, SPEECH_S_PER_TOKEN
from workloads.registry import make_trace
from workloads.statistics.describe import describe
from workloads.trace import Trace

SYNTHETIC = ["poisson", "gamma", "voice"]


def without_barge_in(trace: Trace) -> list:
    return [replace(turn, barge_in_after_s=None) for session in trace.sessions for turn in session.turns]


@pytest.mark.parametrize("name", SYNTHETIC)
def test_seed_decides_the_trace(name: str) -> None:
    assert make_trace(name, {}, 5) == make_trace(name, {}, 5)
    assert make_trace(name, {}, 5).header.hash != make_trace(name, {}, 6).header.hash


@pytest.mark.parametrize("name", SYNTHETIC)
def test_golden_trace(name: str) -> None:
    """The same on every machine; a change here makes old and new results incomparable and needs a reason."""
    check_trace(f"trace_{name}", make_trace(name, {"p": 0.3}, 0))


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


def test_poisson_speaks_by_default() -> None:
    trace = make_trace("poisson", {}, 0)
    columns = trace.columns()
    assert len(trace.sessions) == len(columns["turn"]) == 200
    assert set(columns["modality"]) == {"audio"}
    assert np.array_equal(columns["input_tokens"], np.ceil(13 * columns["audio_s"]))
    assert (columns["reply_audio_s"] > 0).all()
    assert columns["output_tokens"].max() <= 512
    assert np.isnan(columns["history_tokens"]).all()


def test_typed_prompts_and_text_replies_take_no_audio() -> None:
    columns = make_trace("poisson", {"modality": "text", "reply": "text", "requests": 1000}, 0).columns()
    assert set(columns["modality"]) == {"text"}
    assert np.isnan(columns["audio_s"]).all()
    assert np.isnan(columns["reply_audio_s"]).all()
    assert np.median(columns["output_tokens"]) == pytest.approx(300, rel=0.1)


def test_length_parameters_reach_the_trace_and_its_notes() -> None:
    params = {
        "modality": "text",
        "prompt_tokens": 500,
        "prompt_sigma": 0,
        "reply_tokens": 40,
        "reply_sigma": 0,
    }
    trace = make_trace("poisson", params, 0)
    assert set(trace.columns()["input_tokens"]) == {500}
    assert set(trace.columns()["output_tokens"]) == {40}
    assert "prompts: lognormal median 500, sigma 0" in trace.header.notes[0]
    assert make_trace("poisson", {"max_reply_tokens": 30}, 0).columns()["output_tokens"].max() == 30


def test_gamma_is_as_bursty_as_asked() -> None:
    assert describe(make_trace("gamma", {"cv": 4, "rate": 10, "requests": 20_000}, 0))[
        "arrival_gap_cv"
    ] == pytest.approx(4, rel=0.1)


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
    for name in (
        "arrival_rate_per_s",
        "arrival_gap_cv",
        "audio_s_total",
        "reply_audio_s_total",
        "barge_in_share",
    ):
        assert silent[name] is None
