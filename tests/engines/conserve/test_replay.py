"""Whole replays of ConServe and its baselines."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engines.devices.roofline import StepCost
from harness.replays.worker.replay import Replay
from tests.engines.replays import assert_same, replay
from workloads.registry import make_trace
from workloads.trace import Trace

SERVER = {"deployment": "llama_8b_1gpu", "kv_pool_blocks": 1200, "host_kv_gb": 8.0}
RESUMES = ["recompute", "swap", "ic", "ic_prefetch"]
ENGINES = [
    ("conserve", {}),
    *(("conserve", {"resume": resume}) for resume in RESUMES[:3]),
    ("conserve", {"slo_scheduler": False, "ttft_fill": False}),
    ("conserve", {"layer_preemption": False, "guard": 0.1}),
    ("sarathi_p", {}),
    ("non_preemptive", {}),
    ("distserve_p", {}),
    ("distserve_p", {"prefill": 2, "decode": 1}),
]


def both_classes(seed: int = 3, **params: Any) -> Trace:
    load = {"requests": 40, "rate": 4.0, "documents": 12, "max_input_tokens": 6000, "max_output_tokens": 60}
    return make_trace("co_serving", load | {"ttft_deadline_s": 0.2, "tbt_deadline_s": 0.05} | params, seed)


def run(trace: Trace, engine: str = "conserve", server: dict[str, Any] | None = None, **params: Any) -> Replay:
    return replay(engine, params, SERVER | (server or {}), {}, trace, seed=7)


def tokens(done: Replay) -> dict[int, float]:
    events = done.events.to_pandas()
    return events[events["kind"] == "token"].groupby("session")["value"].sum().to_dict()


@settings(max_examples=5)
@example(engine=("conserve", {}), seed=58, pool=420, rate=15.0)  # KV that had come back held what others needed
@example(engine=("conserve", {}), seed=86, pool=420, rate=15.0)  # two documents took it from each other for ever
@example(engine=("distserve_p", {}), seed=0, pool=420, rate=2.0)  # so did KV that had come from another replica
@example(engine=("distserve_p", {}), seed=5, pool=420, rate=15.0)  # no block, and fewer than no tokens for it
@given(
    engine=st.sampled_from(ENGINES),
    seed=st.integers(0, 99),
    pool=st.sampled_from([420, 700, 1500]),
    rate=st.sampled_from([2.0, 15.0]),
)
def test_every_block_returns_and_every_token_is_made(engine: tuple[str, dict], seed: int, pool: int, rate: float):
    """With pools hardly larger than a request; the same with the decode fast path and without."""
    (name, params), trace = engine, both_classes(seed, rate=rate)
    fast, plain = (
        run(trace, name, {"kv_pool_blocks": pool, "decode_fast_path": path}, **params) for path in (True, False)
    )
    assert fast.proof["kv_blocks_used_after"] == 0
    assert tokens(fast) == {each.turns[0].session: each.turns[0].output_tokens for each in trace.sessions}
    assert_same(fast, plain)


@pytest.mark.parametrize("resume", RESUMES)
def test_online_requests_that_fill_the_pool_give_way_to_earlier_ones(resume: str):
    sizes = {"input_tokens": 500, "output_tokens": 200, "max_output_tokens": 200}
    done = run(both_classes(rate=60.0, documents=2, **sizes), server={"kv_pool_blocks": 420}, resume=resume)
    assert done.counters["thinker.online_preempted"] > 0
    made = tokens(done)
    assert len(made) == 42 and sum(count == 200 for count in made.values()) >= 40


def test_a_preempted_request_computes_again_only_what_is_nowhere():
    """Recomputed tokens by `resume`: all of them, or those of blocks that were not full."""
    trace = both_classes(rate=15.0, documents=30)
    computed = {}
    for resume in RESUMES:
        done = run(trace, resume=resume)
        assert sum(done.steps["preempted"].to_pylist()) > 0
        computed[resume] = sum(done.steps["tokens"].to_pylist())
    needed = sum(turn.input_tokens + turn.output_tokens - 1 for each in trace.sessions for turn in each.turns)
    assert computed["recompute"] > computed["swap"] >= needed
    for resume in ("ic", "ic_prefetch"):
        assert 0 <= computed[resume] - needed < 0.5 * (computed["recompute"] - needed)


def test_arrivals_end_long_steps_at_a_safepoint():
    """Offline steps are long, arrivals want an answer: they get it earlier, and what they cut is computed again."""
    trace = both_classes(rate=1.0, documents=60, ttft_deadline_s=0.04)
    within, at_end = (run(trace, layer_preemption=on) for on in (True, False))
    assert within.counters["thinker.interrupted"] > 0 == at_end.counters["thinker.interrupted"]
    assert _ttft_p99(within, trace) < _ttft_p99(at_end, trace)
    assert tokens(within) == tokens(at_end)
    assert within.proof["kv_blocks_used_after"] == 0


def _ttft_p99(done: Replay, trace: Trace) -> float:
    events, columns = done.events.to_pandas(), trace.columns()
    urgent = columns["priority"] == 0
    online = dict(zip(columns["session"][urgent], columns["arrival_s"][urgent], strict=True))
    first = events[(events["kind"] == "first_text") & events["session"].isin(online)]
    return float(np.quantile(first["t"] - first["session"].map(online), 0.99))


def test_safepoints_cost_what_the_paper_adds_up():
    """80 layers on four GPUs, one safepoint every 4 layers, 167.2 us each: 13.1 ms apart in a step of 262 ms, which
    becomes 3.0 to 3.2 ms longer (ConServe section 6.4)."""
    plain = StepCost(0.0, 0.262 / 80, 80, 0.0)
    safe = plain.at_safepoints(4, 167.2e-6)
    assert safe.total_s - plain.total_s == pytest.approx(19 * 167.2e-6)
    assert 0.003 < safe.total_s - plain.total_s < 0.0033
    assert safe.layers == 20 and safe.layer_s == pytest.approx(0.0131 + 167.2e-6)
    assert plain.at_safepoints(1, 0.0) == plain
