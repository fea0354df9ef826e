"""A small stage on vLLM's scheduler, for tests of the adapter and the loop."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from engines.core import vllm_adapter as vllm
from engines.core.device import Row
from engines.core.replica import Replica
from engines.core.stage import Stage
from engines.devices.hardware import load_gpu
from engines.devices.stage import VirtualStage
from engines.devices.virtual import VirtualGpu
from engines.models import load_model

TALKER = load_model("qwen3_omni_30b_a3b").stages["talker"]
BLOCK_BYTES = 16 * TALKER.kv_bytes_per_token


STAGE = Stage(
    name="talker",
    decoder=TALKER,
    gpus=((0,),),
    memory_share=0.9,
    max_num_seqs=16,
    max_num_batched_tokens=2048,
    max_model_len=4096,
    max_tokens=4096,
    prefix_caching=False,
)


def make_stage(blocks: int = 1000, host_blocks: int = 0, **limits: Any) -> Stage:
    return replace(STAGE, kv_blocks=blocks, host_kv_gb=host_blocks * BLOCK_BYTES / 1e9, **limits)


def make_scheduler(cls: type = vllm.StageScheduler, **limits):
    """`limits` are `make_stage`'s."""
    return vllm.make_scheduler(make_stage(**limits), cls)


def make_replica(index: int = 0, **limits) -> Replica:
    """A replica on a modelled GPU without noise; needs an event loop."""
    stage = make_stage(**limits)
    device = VirtualStage(TALKER, VirtualGpu(load_gpu("h200")))
    return Replica(stage, index, vllm.make_scheduler(stage, vllm.StageScheduler), device)


def check_pool(pool) -> tuple[list[int], set[int]]:
    """Raises AssertionError unless each block is free and in the queue once, or held; ids of free and held blocks."""
    free = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
    held = {block.block_id for block in pool.blocks if block.ref_cnt and not block.is_null}
    assert pool.free_block_queue.num_free_blocks == len(free)
    assert sorted([*free, *held]) == [block.block_id for block in pool.blocks if not block.is_null]
    return free, held


def add(scheduler, name: str, prompt: int = 32, output: int = 50, arrival_s: float = 0.0, hashed: bool = False):
    request = vllm.make_request(name, list(range(prompt)), output, arrival_s, 16 if hashed else None)
    scheduler.add_request(request)
    return request


def finish(scheduler, output, token: Callable[[Row], int] = lambda row: 7) -> list[Row]:
    """Report made-up tokens of a step to the scheduler; returns the step's rows."""
    rows = vllm.rows_of(scheduler, output)
    vllm.finish_step(scheduler, output, rows, [[token(row)] if row.samples else [] for row in rows])
    return rows


def step(scheduler, plan=None) -> set[str]:
    """One step with made-up tokens; the ids it scheduled."""
    output = scheduler.schedule() if plan is None else scheduler.schedule_with(plan)
    return {row.request_id for row in finish(scheduler, output)}
