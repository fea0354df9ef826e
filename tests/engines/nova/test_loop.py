"""Nova's scheduling loop (Algorithm 1), read off replays."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from engines.devices.sharing import SharedCompute
from engines.systems.nova.partition import decode_sms
from harness.replays.worker.replay import Replay
from tests.engines.replays import assert_same, moments, replay
from workloads.errors import UserError
from workloads.registry import make_trace
from workloads.trace import Trace

A6000 = {"deployment": "cogagent_a6000"}
ALIKE_S = 1e-9


@cache
def screenshots(requests: int = 40, rate: float = 0.6, seed: int = 1) -> Trace:
    return make_trace("gui", {"requests": requests, "rate": rate, "scaffold_tokens": 90}, seed)


def served(engine: str, trace: Trace | None = None, server: dict | None = None, **params: Any) -> Replay:
    return replay(engine, params, {**A6000, **(server or {})}, {}, trace or screenshots(), seed=3)


@cache
def plain(engine: str = "nova") -> Replay:
    return served(engine)


def quiet(trace: Trace | None = None, server: dict | None = None, **params: Any) -> Replay:
    return served("nova", trace, {"step_noise_cv": 0.0, **(server or {})}, **params)


def passes(run: Replay, *stages: str) -> dict[str, np.ndarray]:
    """Columns of the passes of these stages, in the order in which they began, with their ends."""
    steps = run.steps.to_pandas().sort_values("t_s", kind="stable")
    own = np.isin(steps["stage"], stages) & (np.asarray(steps["requests"]) > 0)
    columns = {name: np.asarray(steps[name])[own] for name in ("t_s", "dt_s", "stage", "requests", "tokens")}
    return columns | {"end_s": columns["t_s"] + columns["dt_s"]}


def in_turn(columns: dict[str, np.ndarray]) -> bool:
    """Whether each begins when the one before has ended."""
    return bool((columns["t_s"][1:] >= columns["end_s"][:-1] - ALIKE_S).all())


@pytest.mark.parametrize("engine", ["nova", "multi_stream", "pf_limit", "chunked"])
def test_every_request_is_answered_in_full(engine: str):
    run = plain(engine)
    finished = run.events.to_pandas().query("kind == 'finish' and stage == 'thinker'").set_index("session")["value"]
    assert finished.to_dict() == {each.id: each.turns[0].output_tokens for each in screenshots().sessions}
    assert run.steps.to_pandas()["kv_used"].iloc[-1] == 0
    assert ("sms" in run.steps.column_names) == (engine == "nova"), "only nova divides the SMs"


def test_a_prefill_follows_its_vision_without_a_gap():
    """So neither overlap nor a batch of either is possible."""
    front = passes(plain(), "vision", "prefill")
    assert list(front["stage"]) == ["vision", "prefill"] * 40 and in_turn(front)
    assert front["t_s"][1::2] == pytest.approx(front["end_s"][::2], abs=ALIKE_S)


def test_a_decode_joins_within_one_iteration():
    """Every iteration holds all who have been prefilled before it and have not ended."""
    run = plain()
    begins, ends = passes(run, "prefill")["end_s"], moments(run, "finish").to_numpy()
    decodes = passes(run, "decode")
    for at_s, requests in zip(decodes["t_s"] + ALIKE_S, decodes["requests"], strict=True):
        assert requests == (begins <= at_s).sum() - (ends <= at_s).sum()
    assert in_turn(decodes)


def test_shares_follow_equation_5_and_take_effect_with_the_next_pass(monkeypatch: pytest.MonkeyPatch):
    begun: list[tuple[float, float]] = []
    submit = SharedCompute.submit

    def seen(self: SharedCompute, step: Any, sms: float | None = None) -> Any:
        assert sms is not None
        begun.append((self._loop.time(), sms))
        return submit(self, step, sms)

    monkeypatch.setattr(SharedCompute, "submit", seen)
    run = served("nova", decode_sms_vision=24, decode_sms_prefill=30, repartition_s=0)
    steps = run.steps.to_pandas().query("requests > 0")
    for at_s, sms in zip(steps["t_s"], steps["sms"], strict=True):
        assert any(abs(t - at_s) < ALIKE_S and given == sms for t, given in begun)
    arrive, prefilled = moments(run, "arrive").to_numpy(), passes(run, "prefill")["end_s"]
    shares = set()
    for stage, default, alpha in (("vision", 24, 4), ("prefill", 30, 6)):
        for at_s in passes(run, stage)["t_s"]:
            pending = (arrive <= at_s + ALIKE_S).sum() - (prefilled <= at_s + ALIKE_S).sum()
            *_, given = [sms for t, sms in begun if abs(t - at_s) < ALIKE_S]
            assert given in (84, 84 - decode_sms(int(pending), default, 12, alpha))
            shares.add(given)
    assert {84, 60, 72} <= shares


def test_a_worker_takes_its_share_before_each_pass():
    free, slow = (
        passes(quiet(screenshots(1), repartition_s=seconds), "vision", "prefill", "decode") for seconds in (0.0, 0.01)
    )
    assert slow["dt_s"] - free["dt_s"] == pytest.approx(0.01)


def test_without_adaptive_the_shares_stay_as_set():
    narrow, wide = (served("nova", adaptive=False, decode_sms_vision=sms, decode_sms_prefill=sms) for sms in (12, 40))
    assert passes(wide, "vision")["dt_s"].mean() > 1.2 * passes(narrow, "vision")["dt_s"].mean()
    assert passes(wide, "decode")["dt_s"].mean() < 0.8 * passes(narrow, "decode")["dt_s"].mean()


def test_two_vision_slots_lengthen_a_pass_by_less_than_1_percent():
    offloaded, resident = (
        passes(quiet(server=server), "vision")["dt_s"].mean() for server in ({"vision_slots": 2}, {})
    )
    assert 1.0 <= offloaded / resident < 1.01


def test_streams_run_all_three_at_once_and_slow_decode_most():
    run = plain("multi_stream")
    vision, prefill = passes(run, "vision"), passes(run, "prefill")
    begun = vision["t_s"][:, None] < prefill["end_s"] - ALIKE_S
    assert (begun & (vision["end_s"][:, None] > prefill["t_s"] + ALIKE_S)).any()
    assert passes(run, "decode")["dt_s"].max() > 4 * 0.0289


@pytest.mark.parametrize("quantum", ["drain", "iteration"])
def test_in_turns_decodes_run_when_five_wait_or_nothing_else_does(quantum: str):
    run = served("pf_limit", screenshots(40, 0.9), decode_quantum=quantum)
    every = passes(run, "vision", "prefill", "decode")
    assert in_turn(every)
    first = 1 + np.flatnonzero((every["stage"][1:] == "decode") & (every["stage"][:-1] == "prefill"))
    begun, requests = every["t_s"][first], every["requests"][first]
    waiting = np.searchsorted(moments(run, "arrive"), begun) - np.searchsorted(passes(run, "vision")["t_s"], begun)
    assert ((requests >= 5) | (waiting == 0)).all()
    assert (requests == 5).any()


def test_the_decode_fast_path_changes_nothing():
    assert_same(served("nova", server={"decode_fast_path": False}), plain())


@pytest.mark.parametrize("engine", ["nova", "multi_stream", "pf_limit"])
@pytest.mark.parametrize("fast", [True, False])
def test_a_request_that_times_out_leaves_no_block_behind(engine: str, fast: bool):
    """In every stage, waiting and in a pass; the others go on, and no block stays behind."""
    server = {**A6000, "decode_fast_path": fast}
    run = replay(engine, {}, server, {"turn_timeout_s": 4.0}, screenshots(40, 1.2), seed=3)
    aborted = len(moments(run, "abort"))
    assert 20 < aborted == 40 - len(moments(run, "finish"))
    assert run.proof["requests_after"] == run.proof["kv_blocks_used_after"] == 0


def test_a_pool_of_two_requests_serves_all():
    """250 blocks hold two requests; prefills of others wait."""
    run = served("nova", screenshots(16, 3.0), {"kv_pool_blocks": 250})
    assert len(moments(run, "finish")) == 16
    assert passes(run, "decode")["requests"].max() <= 2


@pytest.mark.parametrize(
    ("engine", "server", "params", "says"),
    [
        ("nova", {"deployment": "llama_8b_h100"}, {}, "no vision"),
        ("nova", {}, {"decode_sms_vision": 84}, "decode_sms_vision=84 leaves none"),
        ("nova", {"host_kv_gb": 8, "prefix_caching": True}, {"kv": "host"}, "set kv=lru"),
        ("chunked", {}, {"chunk_tokens": 15}, "'chunk_tokens' should be .* 16, got 15"),
    ],
)
def test_wrong_settings_are_refused(engine: str, server: dict, params: dict, says: str):
    with pytest.raises(UserError, match=says):
        served(engine, screenshots(2), server, **params)
