"""The scheduling loop (Algorithm 1): what follows from it, read off replays."""

from functools import cache
from typing import Any

import pandas as pd
import pytest

from engines.devices.sharing import SharedCompute
from engines.systems.nova.partition import decode_sms
from harness.replay import Replay, replay
from workloads.errors import UserError
from workloads.registry import make_trace
from workloads.trace import Trace

A6000 = {"deployment": "cogagent_a6000"}
ALIKE_S = 1e-9


@cache
def screenshots(requests: int = 40, rate: float = 0.6, seed: int = 1) -> Trace:
    return make_trace("gui", {"requests": requests, "rate": rate, "template_tokens": 90}, seed)


def served(engine: str, trace: Trace | None = None, server: dict | None = None, **params: Any) -> Replay:
    return replay(engine, params, {**A6000, **(server or {})}, {}, trace or screenshots(), seed=3)


@cache
def nova() -> Replay:
    return served("nova")


def passes(run: Replay, *stages: str) -> pd.DataFrame:
    """Passes of these stages, with their ends."""
    steps = run.steps.to_pandas()
    steps = steps[steps["stage"].isin(stages) & (steps["requests"] > 0)]
    return steps.assign(end_s=steps["t_s"] + steps["dt_s"]).sort_values("t_s").reset_index(drop=True)


def assert_same(one: Replay, other: Replay) -> None:
    pd.testing.assert_frame_equal(one.events.to_pandas(), other.events.to_pandas(), check_exact=True)
    pd.testing.assert_frame_equal(one.steps.to_pandas(), other.steps.to_pandas(), check_exact=True)


def moments(run: Replay, kind: str) -> pd.Series:
    events = run.events.to_pandas()
    return events[(events["kind"] == kind) & (events["stage"] == "thinker")].groupby("session")["t"].first()


@pytest.mark.parametrize("engine", ["nova", "multi_stream", "pf_limit", "chunked"])
def test_everybody_is_answered_in_full(engine: str):
    run = nova() if engine == "nova" else served(engine)
    events = run.events.to_pandas()
    finished = events[(events["kind"] == "finish") & (events["stage"] == "thinker")]
    asked = {session.turns[0].session: session.turns[0].output_tokens for session in screenshots().sessions}
    assert dict(zip(finished["session"], finished["value"].astype(int), strict=True)) == asked
    assert run.proof is not None and run.steps.to_pandas()["kv_used"].iloc[-1] == 0


def test_vision_and_prefill_never_overlap_and_are_never_batched():
    front = passes(nova(), "vision", "prefill")
    assert (front["t_s"].iloc[1:].to_numpy() >= front["end_s"].iloc[:-1].to_numpy() - ALIKE_S).all()
    assert (front["requests"] == 1).all()


def test_a_prefill_follows_its_vision_without_a_gap():
    front = passes(nova(), "vision", "prefill")
    assert list(front["stage"]) == ["vision", "prefill"] * 40
    assert front["t_s"].iloc[1::2].to_numpy() == pytest.approx(
        front["end_s"].iloc[::2].to_numpy(), abs=ALIKE_S
    )


def test_first_come_first_seen():
    arrive, start = moments(nova(), "arrive"), moments(nova(), "start")
    assert list(start.sort_values().index) == list(arrive.sort_values().index)


def test_a_decode_joins_within_one_iteration():
    """Every iteration holds all who have been prefilled before it and have not ended."""
    run = nova()
    begins, ends = passes(run, "prefill")["end_s"].to_numpy(), moments(run, "finish")
    for step in passes(run, "decode").itertuples():
        ready = (begins <= step.t_s + ALIKE_S).sum() - (ends <= step.t_s + ALIKE_S).sum()
        assert step.requests == ready
    decodes = passes(run, "decode")
    assert (decodes["t_s"].iloc[1:].to_numpy() >= decodes["end_s"].iloc[:-1].to_numpy() - ALIKE_S).all()


def test_shares_follow_equation_5_and_take_effect_with_the_next_pass(monkeypatch: pytest.MonkeyPatch):
    begun: list[tuple[float, float]] = []
    submit = SharedCompute.submit

    def seen(self: SharedCompute, step: Any, sms: float | None = None) -> Any:
        assert sms is not None
        begun.append((self._loop.time(), sms))
        return submit(self, step, sms)

    def resize(*args: Any) -> None:
        raise AssertionError("a pass keeps its share")

    monkeypatch.setattr(SharedCompute, "submit", seen)
    monkeypatch.setattr(SharedCompute, "resize", resize)
    run = served("nova", decode_sms_vision=24, decode_sms_prefill=30)
    arrive, prefilled = moments(run, "arrive").to_numpy(), passes(run, "prefill")["end_s"].to_numpy()
    of_front = {(round(t, 9)): s for t, s in begun}
    shares = set()
    for stage, default, alpha in (("vision", 24, 4), ("prefill", 30, 6)):
        for step in passes(run, stage).itertuples():
            pending = (arrive <= step.t_s + ALIKE_S).sum() - (prefilled <= step.t_s + ALIKE_S).sum()
            given = [s for t, s in begun if abs(t - step.t_s) < ALIKE_S]
            assert given[-1] in (84, 84 - decode_sms(int(pending), default, 12, alpha))
            shares.add(given[-1])
    assert {84, 60, 72} <= shares and of_front
    assert {s for _, s in begun} <= {84, *(84 - s for s in range(12, 31))} | set(range(12, 31))


def test_each_part_can_be_switched_off():
    fixed = served("nova", adaptive=False, decode_sms_vision=12, decode_sms_prefill=12)
    wide = served("nova", adaptive=False, decode_sms_vision=40, decode_sms_prefill=40)
    assert passes(wide, "vision")["dt_s"].mean() > 1.2 * passes(fixed, "vision")["dt_s"].mean()
    assert passes(wide, "decode")["dt_s"].mean() < 0.8 * passes(fixed, "decode")["dt_s"].mean()
    offloaded = served("nova", server={"vision_slots": 2, "step_noise_cv": 0.0})
    plain = served("nova", server={"step_noise_cv": 0.0})
    more = passes(offloaded, "vision")["dt_s"].mean() / passes(plain, "vision")["dt_s"].mean()
    assert 1.0 <= more < 1.01


def test_streams_run_all_three_at_once_and_slow_decode_most():
    run = served("multi_stream")
    vision, prefill = passes(run, "vision"), passes(run, "prefill")
    assert any(
        ((vision["t_s"] < p.end_s - ALIKE_S) & (vision["end_s"] > p.t_s + ALIKE_S)).any()
        for p in prefill.itertuples()
    )
    assert passes(run, "decode")["dt_s"].max() > 4 * 0.0289


@pytest.mark.parametrize("quantum", ["drain", "iteration"])
def test_in_turns_decodes_run_when_five_wait_or_nothing_else_does(quantum: str):
    run = served("pf_limit", screenshots(40, 0.9), decode_quantum=quantum)
    every = passes(run, "vision", "prefill", "decode")
    assert (every["t_s"].iloc[1:].to_numpy() >= every["end_s"].iloc[:-1].to_numpy() - ALIKE_S).all()
    arrive, visions = moments(run, "arrive").to_numpy(), passes(run, "vision")
    first = every[(every["stage"] == "decode") & (every["stage"].shift() == "prefill")]
    for step in first.itertuples():
        waiting = (arrive <= step.t_s).sum() - (visions["t_s"] <= step.t_s).sum()
        assert step.requests >= 5 or not waiting
    assert (first["requests"] == 5).any()


def test_chunks_are_vllms_own_with_a_small_budget():
    run, stock = served("chunked"), served("vllm_omni", server={"max_num_batched_tokens": 128})
    ours, theirs = passes(run, "thinker"), passes(stock, "thinker")
    assert ours["tokens"].max() == 128
    pd.testing.assert_frame_equal(ours, theirs)


def test_the_same_seed_gives_the_same_bytes():
    again = served("nova")
    assert_same(again, nova())


def test_vllm_is_asked_or_not_with_the_same_result():
    asked = served("nova", server={"lazy_steps": False})
    assert_same(asked, nova())


def test_a_pool_that_holds_few_requests_serves_all():
    """Two fit; a prefill waits for blocks and nobody is lost."""
    run = served("nova", screenshots(16, 3.0), {"kv_pool_blocks": 250})
    assert len(moments(run, "finish")) == 16
    assert passes(run, "decode")["requests"].max() <= 2


@pytest.mark.parametrize(
    ("engine", "server", "params", "says"),
    [
        ("nova", {"deployment": "llama_8b_h100"}, {}, "no vision"),
        ("nova", {}, {"decode_sms_vision": 84}, "decode_sms_vision=84 leaves none"),
        ("nova", {"host_kv_gb": 8, "prefix_caching": True}, {"kv": "host"}, "set kv=lru"),
    ],
)
def test_what_cannot_be_served_says_so(engine: str, server: dict, params: dict, says: str):
    with pytest.raises(UserError, match=says):
        served(engine, screenshots(2), server, **params)
