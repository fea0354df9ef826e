"""How large the KV pool of a stage's replicas is: as is asked for, or what the weights leave of a GPU."""

from dataclasses import replace

from engines.core.stage import Stage
from engines.devices.extensions import InLockstep
from engines.devices.hardware import Gpu
from engines.devices.layer_slots import slots_of

ACTIVATION_RESERVE_BYTES = 4e9
"""Device memory kept for activations and graphs beside weights and KV; vLLM profiles this, we assume it."""


def with_pool(stage: Stage, gpu: Gpu, blocks: int | None) -> Stage:
    """The stage with a KV pool of `blocks`, by default as the deployment says, or what the GPU's memory leaves after
    the weights.

    A pool without prefix caching is never larger than its slots can use, and no request may be longer than the
    pool: vLLM would not start.
    """
    if stage.roles and stage.role is None:
        sized = {role: with_pool(stage.as_role(role), gpu, blocks) for role in stage.roles}
        for role, each in sized.items():
            stage = stage.with_role(role, kv_blocks=each.kv_blocks, max_model_len=each.max_model_len)
        length = min(each.max_model_len for each in sized.values())
        return replace(stage, kv_blocks=next(iter(sized.values())).kv_blocks, max_model_len=length)
    blocks = blocks or stage.kv_blocks
    if not blocks:
        each_bytes = gpu.memory_bytes * stage.memory_share - ACTIVATION_RESERVE_BYTES
        # Heads are divided between the GPUs of a replica; one vector for all of them is on each.
        copies = stage.split if stage.decoder.mla else 1
        blocks = int((stage.split * each_bytes - _resident_bytes(stage)) // (stage.block_bytes * copies))
        if not stage.prefix_caching:
            blocks = min(blocks, stage.max_num_seqs * -(-stage.max_model_len // stage.block_size) + 1)
    return replace(
        stage, kv_blocks=blocks, max_model_len=min(stage.max_model_len, (blocks - 1) * stage.block_size)
    )


def _resident_bytes(stage: Stage) -> int:
    """Weights of one replica that stay on its GPUs."""
    dies = len(stage.roles[stage.role]) if stage.role and stage.extension(InLockstep) else 1
    return stage.decoder.resident_bytes(slots_of(stage), dies)
