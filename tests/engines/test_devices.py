"""The virtual device: step times against hand arithmetic and anchors, queues, interruption between layers, GPUs."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.deployments import load_deployment
from engines.deployments.changes import with_pool
from engines.deployments.kv_pool import start_bytes
from engines.devices.hardware import gpu_called, load_gpu
from engines.devices.kernels.choose import shipped
from engines.devices.kernels.steps import MeasuredSteps
from engines.devices.roofline import Roofline, StepCost, Work
from engines.devices.virtual import ComputeQueue, CopyEngine, VirtualGpu
from engines.models import load_model, values
from engines.server import ServerParams, resolve
from tests.waiting import in_virtual_time

QWEN = load_model("qwen3_omni_30b_a3b")
THINKER = QWEN.stages["thinker"]
ACTIVE_PARAMS = 48 * (THINKER.dense_params + 8 * THINKER.expert_params)
H200 = load_gpu("h200")


def decode(batch: int, context: int = 1000) -> Work:
    return Work(batch, batch, batch * (context + 1), attention_pairs=batch * (context + 0.5), samples=batch)


def test_model_facts_give_the_published_sizes():
    assert THINKER.kv_bytes_per_token == 96 * 1024
    assert QWEN.stages["talker"].kv_bytes_per_token == 20 * 1024
    assert THINKER.weight_bytes == pytest.approx(30.5e9 * 2, rel=0.01)  # 30.5 B parameters, bf16
    assert load_model("llama_3_1_8b").stages["thinker"].weight_bytes == pytest.approx(8.03e9 * 2, rel=0.01)


def test_no_request_may_be_longer_than_the_pool():
    stage = resolve(ServerParams.of({"kv_pool_blocks": 101})).stages["thinker"]
    assert (stage.kv_blocks, stage.max_model_len) == (101, 1600)


def test_single_stream_decode_is_bound_by_active_weights():
    layer_s = Roofline(THINKER, H200).layer_s(decode(1, context=0))
    assert 48 * layer_s == pytest.approx(2 * ACTIVE_PARAMS / (0.76 * 4.8e12), rel=0.01)


def test_long_prefill_is_bound_by_arithmetic():
    n = 16_000
    work = Work(requests=1, tokens=n, kv_tokens=n, attention_pairs=n * n / 2, samples=1)
    flops = 2 * ACTIVE_PARAMS * n + 48 * 4 * 32 * 128 * n * n / 2
    assert 48 * Roofline(THINKER, H200).layer_s(work) == pytest.approx(flops / (989e12 * 0.67), rel=1e-6)


def test_calibrated_thinker_meets_its_anchor():
    """TPOT 4.5 ms at concurrency 1 behind 16k tokens (vllm-omni PR 2997): the number host_s was fitted to, which left
    the host hardly any of it beside measured kernels."""
    decoder = load_deployment("qwen3_omni_2gpu_april").stages["thinker"].decoder
    kernels = shipped("qwen3_omni_30b_a3b", "h200")
    measured = None if kernels is None else kernels.of("thinker", 1)
    assert measured is not None
    steps = MeasuredSteps(decoder, H200, measured)
    assert steps.step(decode(1, 16_000)).total_s == pytest.approx(4.5e-3, rel=0.01)
    assert decoder.host_s + decoder.host_s_per_request < 0.05 * 4.5e-3


@given(st.integers(0, 5000))
def test_the_share_of_active_experts_grows_with_tokens(tokens: int):
    roofline = Roofline(THINKER, H200)
    assert 0 <= roofline.active_experts(tokens) <= roofline.active_experts(tokens + 1) <= 1
    assert roofline.active_experts(1) == pytest.approx(8 / 128)


@given(st.integers(1, 4000), st.integers(0, 20_000), st.integers(2, 8))
def test_a_split_layer_takes_its_share_of_the_time_and_two_all_reduces(tokens: int, context: int, gpus: int):
    work = decode(tokens, context)
    whole_s, split_s = Roofline(THINKER, H200).layer_s(work), Roofline(THINKER, H200, gpus).layer_s(work)
    allreduce_s = 8e-6 + 2 * (gpus - 1) / gpus * tokens * 2048 * 2 / 360e9
    assert split_s == pytest.approx(whole_s / gpus + 2 * allreduce_s)


def test_a_stage_cannot_be_split_over_gpus_without_nvlink():
    with pytest.raises(ValueError, match="nvlink"):
        Roofline(THINKER, load_gpu("a6000"), 2)


@in_virtual_time
async def test_two_gpus_of_a_replica_divide_weights_kv_and_copies():
    thinker = replace(load_deployment("qwen3_omni_2gpu").stages["thinker"], prefix_caching=True)
    one, two = (with_pool(replace(thinker, gpus=(group,)), H200, None) for group in ((0,), (0, 1)))
    more = (two.kv_blocks - one.kv_blocks) * one.block_bytes
    start, divided = start_bytes(one, H200), start_bytes(two, H200)
    assert more == pytest.approx(H200.memory_bytes * 0.9 + start - 2 * divided, rel=1e-4)  # weights once
    assert [VirtualGpu(H200, count).to_device.copy(1e9) for count in (1, 2)] == pytest.approx([0.02, 0.01])


@pytest.mark.parametrize("fact", [{"value": 48}, 48])
def test_a_fact_without_a_source_is_refused(fact: object):
    with pytest.raises(ValueError, match="source"):
        values({"layers": fact})


COST = StepCost(before_s=0.001, layer_s=0.002, layers=10, after_s=0.003)


LIGHTER = StepCost(before_s=0.001, layer_s=0.001, layers=10, after_s=0.002)


@pytest.mark.parametrize(
    ("asked", "end_s", "layers"),
    [
        ([(0.001,)], 0.001, 0),
        ([(0.0051,)], 0.007, 3),
        ([(0.0209,)], 0.024, 10),
        ([(0.0225,)], 0.024, 10),
        ([(0.0051, LIGHTER)], 0.016, 10),
        ([(0.0209, LIGHTER)], 0.024, 10),
        # Three layers of 2 ms are done at 7 ms, and two of 1 ms at 9 ms.
        ([(0.0051, LIGHTER), (0.0085,)], 0.009, 5),
    ],
)
@in_virtual_time
async def test_an_interrupted_step_ends_or_shrinks_at_the_next_layer_boundary(
    asked: list[tuple], end_s: float, layers: int
):
    loop, queue = asyncio.get_running_loop(), ComputeQueue()
    execution = queue.submit(COST)
    for at_s, *smaller in asked:
        loop.call_at(at_s, queue.interrupt, execution, *smaller)
    await execution
    assert loop.time() == pytest.approx(end_s)
    assert (execution.layers_done, execution.completed) == (layers, layers == 10)


@in_virtual_time
async def test_copies_run_one_after_the_other_at_the_engine_s_bandwidth():
    engine = CopyEngine(bandwidth=50e9)
    ends_s = [engine.copy(1e9), engine.copy(0.5e9), engine.copy(1e9, not_before=1.0)]
    assert ends_s == pytest.approx([0.02, 0.03, 1.02])


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("NVIDIA GB200", "gb200"), ("NVIDIA B200", "b200"), ("NVIDIA A100-SXM4-80GB", "a100"), ("NVIDIA L40S", "l40s")],
)
def test_a_gpu_is_found_by_its_driver_name(theirs: str, ours: str) -> None:
    assert gpu_called(theirs) == ours
