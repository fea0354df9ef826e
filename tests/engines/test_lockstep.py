"""Dies that step together, and DeepSeek-R1 on them: published shapes, the slowest die's time, nothing lost."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.device import NO_ROWS, Row, SummedRows
from engines.core.stage import Stage
from engines.core.step_cost import StepWork
from engines.deployments.kv_pool import start_bytes
from engines.devices.expert_parallel import BalancedExperts, all_to_all_s
from engines.devices.hardware import load_gpu
from engines.devices.lockstep import LockstepDies
from engines.devices.roofline import Work
from engines.models import load_model
from engines.server import ServerParams, resolve
from engines.systems.omniinfer.decode_group import with_redundant_slots
from engines.systems.omniinfer.omniinfer_params import ReplicaParams
from harness.replays.worker.replay import Replay
from harness.request_tables.request_table import request_table
from tests.engines import replays
from tests.engines.replays import assert_same
from tests.waiting import in_virtual_time
from workloads.errors import UserError
from workloads.registry import make_trace
from workloads.trace import Trace

R1 = load_model("deepseek_r1").stages["thinker"]
SIX = {"deployment": "deepseek_r1_6p8_1d32"}


@pytest.fixture(scope="module")
def thinker() -> Stage:
    return resolve(ServerParams.model_validate(SIX)).stages["thinker"]


def test_deepseek_r1_has_its_published_shapes():
    embeddings = 2 * R1.vocab * R1.hidden
    active = R1.layers * R1.dense_params + 58 * 8 * R1.expert_params + embeddings / 2
    assert R1.weight_bytes - embeddings == pytest.approx(671e9, rel=0.001)
    assert active == pytest.approx(37e9, rel=0.02)
    assert R1.attention_params == pytest.approx(187.1e6, rel=0.001)
    assert R1.kv_bytes_per_token == 61 * 576 * 2
    # Of 64 dies each holds routed experts, shared ones, attention and dense layers, in GB, and the embeddings
    die_gb = (R1.resident_bytes(expert_dies=64) - 2 * embeddings) / 1e9
    assert die_gb == pytest.approx(10.2 + 2.6 + 11.4 + 1.2, rel=0.01)


def test_pools_leave_room_for_48_requests_on_a_die_and_a_node_has_its_vectors_on_every_die(thinker: Stage):
    decode, prefill = thinker.as_role("decode"), thinker.as_role("prefill")
    assert decode.block_bytes == 128 * 61 * 1152
    assert decode.kv_blocks * 128 > 48 * (3200 + 1180)
    free = 16 * (0.9 * 64e9 - start_bytes(prefill, load_gpu("ascend_910c_die")))
    assert prefill.kv_blocks == int((free - R1.weight_bytes) // (16 * prefill.block_bytes))


@in_virtual_time
async def test_experts_are_timed_once_a_step_with_the_tokens_of_each_die():
    asked = []

    def experts_s(tokens) -> float:
        asked.append(list(tokens))
        return 1.0

    rows = [[Row("", 1, 100, True)] * 3, [], [Row("", 512, 0, False)]]
    dies = LockstepDies(R1, load_gpu("ascend_910c_die"), experts_s)
    assert 1.0 < dies.step_s(rows, [NO_ROWS] * 3) < 1.1
    assert asked == [[3, 0, 512]]


def test_balanced_experts_take_the_time_of_their_weights_tokens_and_links():
    """58 layers at batch 48 on 64 dies: four experts read, 384 tokens multiplied, two all-to-alls."""
    gpu = load_gpu("ascend_910c_die")
    read_s = 4 * R1.expert_params / gpu.bandwidth
    compute_s = 384 * 2 * R1.expert_params / (2 * gpu.flops)
    link_s = 384 * 7168 * 3 / gpu.nvlink_bandwidth
    expected = 58 * (max(read_s, compute_s) + link_s + 2 * all_to_all_s(64))
    assert BalancedExperts(R1, gpu, 64)([48] * 64) == pytest.approx(expected, rel=0.001)


@given(
    rows=st.lists(st.integers(1, 900), max_size=8),
    summed=st.lists(st.integers(1, 900), max_size=8),
    reach=st.sampled_from([None, 1, 512]),
    steps=st.integers(0, 5),
)
def test_summed_rows_are_the_work_of_the_rows_one_by_one(
    rows: list[int], summed: list[int], reach: int | None, steps: int
):
    """Contexts of summed rows grow by one a step. None crosses the reach of attention on the way."""
    sums, goes_on = SummedRows(), []
    for context in summed:
        far = reach is not None and context >= reach
        if reach is None or far or context + steps < reach:
            sums.add(context, far)
            goes_on.append(Row("", 1, context + steps, True))
    for _ in range(steps):
        sums.advance()
    own = [Row("", 1, context, True) for context in rows]
    assert Work.of(own, reach, 0.5, sums) == Work.of([*own, *goes_on], reach, 0.5)
    assert StepWork.of_rows(own, sums) == StepWork.of_rows([*own, *goes_on])
    for row in goes_on:
        sums.remove(row.context, reach is not None and row.context >= reach)
    assert sums == NO_ROWS


@cache
def trace(requests: int = 90, output: float = 40.0) -> Trace:
    return make_trace("novel", {"requests": requests, "rate": 40.0, "output_mean": output}, 3)


@pytest.fixture(scope="module")
def done() -> Replay:
    return replays.run(trace(), "omniinfer", server=SIX)


def test_every_request_gets_its_tokens_and_every_block_returns(done: Replay):
    events = done.events.to_pandas()
    tokens = events[events["kind"] == "token"].groupby("session")["value"].sum()
    assert tokens.tolist() == [session.turns[0].output_tokens for session in trace().sessions]
    assert done.proof["kv_blocks_used_after"] == done.proof["requests_after"] == 0


def test_dies_begin_and_end_their_steps_together(done: Replay):
    steps = done.steps.to_pandas()
    decode = steps[(steps["replica"] >= 6) & (steps["requests"] > 0)]
    each = decode.groupby("t_s")
    assert (each["dt_s"].nunique() == 1).all() and each.size().max() > 10
    begins = np.array(sorted(each.groups))
    ends = begins + each["dt_s"].first().to_numpy()
    assert (begins[1:] >= ends[:-1] - 1e-9).all()
    assert decode["prefill_tokens"].sum() == 0


@pytest.mark.parametrize("timeout_s", [1.5, 2.5])
def test_summed_rows_change_nothing_and_aborts_leave_nothing_behind(timeout_s: float):
    """Listeners get 16 tokens at a time. A listener who waits too long gives up, wherever the request is then."""
    server, client = SIX | {"stream_interval": 16}, {"turn_timeout_s": timeout_s}
    fast, asked = (
        replays.run(trace(120, 100.0), "omniinfer", client, server | {"decode_fast_path": fast}, attention="omniattn")
        for fast in (True, False)
    )
    assert_same(fast, asked)
    kinds = fast.events.to_pandas()["kind"].value_counts()
    assert 5 < kinds["abort"] <= kinds["turn_failed"] < 120
    assert fast.proof["kv_blocks_used_after"] == fast.proof["requests_after"] == 0


def test_redundant_slots_take_their_memory_off_the_pool(thinker: Stage):
    def blocks(**params: int) -> int:
        return with_redundant_slots(thinker, ReplicaParams.model_validate(params)).as_role("decode").kv_blocks

    decode = thinker.as_role("decode")
    taken = 58 * R1.expert_params * R1.layer_dtype_bytes / decode.block_bytes
    assert 0 <= decode.kv_blocks - blocks() - taken < 1
    assert blocks(redundant_slots=0) == decode.kv_blocks
    with pytest.raises(UserError, match="take fewer slots"):
        blocks(redundant_slots=1000)


def test_a_stream_interval_changes_neither_the_first_nor_the_last_token():
    """vLLM's stream_interval: the first token and the last come when they came."""
    few = trace(24, 40.0)
    one, many = (replays.run(few, "omniinfer", server=SIX | extra) for extra in ({}, {"stream_interval": 16}))
    tables = [request_table(done.events.to_pandas(), pd.DataFrame(few.columns())) for done in (one, many)]
    for column in ("ttft_s", "e2e_s", "tbt_mean_s", "generated_entry"):
        assert tables[0][column].to_numpy() == pytest.approx(tables[1][column].to_numpy()), column
    messages = [(done.events.to_pandas()["kind"] == "text").sum() for done in (one, many)]
    assert messages[1] < messages[0] / 5


def test_an_idle_group_takes_no_steps():
    """No step is recorded between two requests far apart."""
    far = make_trace("novel", {"requests": 2, "rate": 0.05, "output_mean": 5.0}, 1)
    begins = np.sort(replays.run(far, "omniinfer", server=SIX).steps["t_s"].to_numpy())
    assert np.diff(begins).max() > 1.0
    assert len(begins) < 200
