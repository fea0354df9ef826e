"""Steps of which vLLM is not asked leave what they would have left: events, steps and counters, byte for byte."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.core.vllm_adapter.lazy_decode import LazyDecodes
from harness.worker.replay import Replay
from tests.engines.replays import cut_short, replay, voice_trace
from workloads.registry import make_trace
from workloads.trace import Trace


def exact(table: pa.Table) -> dict[str, bytes | list[str]]:
    """Every bit of it: a missing number is unlike itself, and its bytes are not."""
    columns = {name: table[name].to_numpy() for name in table.column_names}
    return {
        name: values.tolist() if values.dtype == object else values.tobytes()
        for name, values in columns.items()
    }


def both(trace: Trace, engine: str, params: dict[str, Any], server: dict[str, Any]) -> list[Replay]:
    """The same replay with lazy steps and without."""
    return [replay(engine, params, {**server, "lazy_steps": on}, {}, trace, seed=7) for on in (True, False)]


def assert_same(lazy: Replay, eager: Replay) -> None:
    assert exact(lazy.events) == exact(eager.events)
    assert exact(lazy.steps) == exact(eager.steps)
    assert lazy.counters == eager.counters
    assert lazy.run_end_s == eager.run_end_s


@pytest.fixture
def asked(monkeypatch) -> Counter[str]:
    """Rounds, and those in which vLLM was asked."""
    counts: Counter[str] = Counter()
    schedule = LazyDecodes.schedule

    def counted(self: LazyDecodes, plan: Any) -> Any:
        scheduled, rows = schedule(self, plan)
        counts["rounds"] += 1
        counts["asked"] += scheduled is not None
        return scheduled, rows

    monkeypatch.setattr(LazyDecodes, "schedule", counted)
    return counts


@st.composite
def servers(draw: Any) -> dict[str, Any]:
    """A thinker's pool from roomy to hardly larger than a request, with and without KV kept on it and on the host."""
    caching = draw(st.booleans())
    return {
        "prefix_caching": caching,
        "kv_pool_blocks": draw(st.sampled_from([64, 80, 120, 400, 5000])),
        "host_kv_gb": draw(st.sampled_from([0, 0.05, 4])) if caching else 0,
        "block_size": draw(st.sampled_from([8, 16, 16])),
        "abort_at": draw(st.sampled_from(["step", "layer"])),
    }


def test_a_reply_longer_than_the_pool_leaves_room_for_its_prompt():
    server = {"prefix_caching": False, "kv_pool_blocks": 64, "host_kv_gb": 0, "block_size": 8}
    done = replay(
        "vllm_omni", {}, server, {}, voice_trace(seed=52, sessions=8, rate=2.0, reply_tokens=300), seed=7
    )
    assert done.counters["truncated_replies"] > 0 and done.counters["truncated_prompts"] > 0


COMPOSITIONS = st.sampled_from(
    [
        ("vllm_omni", {}),
        ("vllm_omni", {"order": "priority"}),
        ("vllm_omni_wo", {}),
        ("liveserve", {}),
        ("liveserve", {"u2_mode": "work_conserving"}),
        ("liveserve", {"u2_mode": "yielding", "kv_relief": False}),
        ("liveserve", {"order": "fcfs"}),
    ]
)


@pytest.mark.slow
@settings(max_examples=16, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    composition=COMPOSITIONS,
    server=servers(),
    seed=st.integers(0, 99),
    rate=st.sampled_from([2.0, 20.0]),
    reply_tokens=st.sampled_from([20, 100, 300]),
    cut_s=st.sampled_from([None, 0.1, 0.5]),
)
def test_spoken_dialogues_are_served_the_same(
    asked, composition, server, seed: int, rate: float, reply_tokens: int, cut_s: float | None
):
    """Barge-ins while the server is at work, preemption under a full pool, offloading and preloads included."""
    engine, params = composition
    trace = voice_trace(seed=seed, sessions=8, rate=rate, reply_tokens=reply_tokens)
    if cut_s is not None:
        trace = cut_short(trace, cut_s)
    assert_same(*both(trace, engine, params, server))


@settings(max_examples=8)
@given(
    seed=st.integers(0, 99),
    rate=st.sampled_from([5.0, 50.0]),
    pool=st.sampled_from([600, 2000, None]),
    order=st.sampled_from(["fcfs", "priority", "liveserve"]),
    workload=st.sampled_from(["gamma", "co_serving"]),
)
def test_text_is_served_the_same(seed: int, rate: float, pool: int | None, order: str, workload: str):
    """Single requests on a text model, in bursts and with long documents behind them."""
    params = {"rate": rate, "requests": 30, "max_output_tokens": 200, "max_input_tokens": 6000}
    if workload == "gamma":
        params = {"rate": rate, "requests": 30, "modality": "text", "reply": "text", "max_reply_tokens": 200}
    else:
        params["documents"] = 12
    trace = make_trace(workload, params, seed)
    server = {"deployment": "llama_8b_1gpu", "kv_pool_blocks": pool}
    assert_same(*both(trace, "vllm_omni_wo", {"order": order}, server))


def test_a_full_pool_preempts_the_same():
    """Preempted: the rows of that round are vLLM's to choose, all of them."""
    trace = voice_trace(sessions=16, rate=20.0, reply_tokens=300)
    lazy, eager = both(trace, "vllm_omni", {}, {"kv_pool_blocks": 64})
    assert_same(lazy, eager)
    assert sum(lazy.steps["preempted"].to_pylist()) > 0


def test_vllm_is_asked_in_few_rounds(asked):
    """Prompts, last tokens and every 16th need it, where KV is kept every 8th."""
    replay("vllm_omni_wo", {}, {}, {}, voice_trace(), seed=7)
    assert asked["asked"] < 0.5 * asked["rounds"]
    assert asked["rounds"] > 1000


def test_rounds_stand_under_a_policy_whose_plan_is_the_same(monkeypatch):
    """It is asked in each all the same, as its order follows playback."""
    made = Counter[str]()
    schedule = LazyDecodes._schedule

    def counted(self: LazyDecodes, plan: Any) -> Any:
        made["rounds"] += 1
        return schedule(self, plan)

    monkeypatch.setattr(LazyDecodes, "_schedule", counted)
    done = replay("liveserve", {}, {}, {}, voice_trace(), seed=7)
    assert made["rounds"] < 0.6 * done.cost["steps"]


@pytest.mark.parametrize("seed", [6, 14])
def test_a_block_that_an_interrupted_row_was_given_is_never_hit(seed: int):
    """Its content was never computed; vLLM was not asked about the row, and gave it the block all the same."""
    trace = cut_short(voice_trace(seed=seed, sessions=8, rate=2.0, reply_tokens=100), 0.1)
    server = {
        "prefix_caching": True,
        "kv_pool_blocks": 64,
        "host_kv_gb": 0,
        "block_size": 8,
        "abort_at": "layer",
    }
    assert_same(*both(trace, "vllm_omni", {}, server))
