"""The use of OmniPlacement and OmniAttn by a group of decode dies."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from engines.core.stage import ENTRY, AttentionWindow
from engines.devices.expert_parallel import group_of
from engines.devices.extensions import InLockstep
from engines.systems.omniinfer.attention_pattern import compressed
from engines.systems.omniinfer.experts import ExpertSteps, expert_steps
from engines.systems.omniinfer.rebalancing import DynamicPlacement
from engines.turns.hook import Hook
from workloads.errors import UserError

if TYPE_CHECKING:
    from engines.builder import Parts
    from engines.core.stage import Stage
    from engines.systems.omniinfer.omniinfer_params import AttentionParams, LoadParams, ReplicaParams
    from engines.turns.pipeline import Pipeline


def compressed_decode(stage: Stage, params: AttentionParams) -> Stage:
    """Return the stage whose decode replicas attend as the parameters say; prefill replicas see everything."""
    window = compressed(stage.as_role("decode"), params).extension(AttentionWindow)
    return stage if window is None else stage.with_role("decode", window)


def with_redundant_slots(stage: Stage, params: ReplicaParams) -> Stage:
    """Return the stage whose decode replicas have room for redundant slots, taken from their KV pools. UserError if too
    little of these remains."""
    if "decode" not in stage.roles:
        return stage
    decode, decoder = stage.as_role("decode"), stage.decoder
    layers = decoder.layers - decoder.dense_layers
    units = layers if params.redundant_slots is None else params.redundant_slots
    taken = math.ceil(units * decoder.expert_params * decoder.layer_dtype_bytes / decode.block_bytes)
    blocks = decode.kv_blocks - taken
    if (blocks - 1) * decode.block_size < decode.max_model_len:
        raise UserError(
            f"redundant_slots={units} take {taken} of the {decode.kv_blocks} KV blocks of a die, and the rest does "
            f"not hold one request of {decode.max_model_len} tokens; take fewer slots."
        )
    return stage.with_role("decode", kv_blocks=blocks)


def place(graph: Pipeline, parts: Parts, params: LoadParams) -> None:
    """Let the decode dies step together, if they do, with experts placed as the parameters say."""
    dies = [die for die in graph.at(ENTRY) if die.replica.stage.extension(InLockstep) is not None]
    if dies:
        steps = _expert_steps(parts, dies[0].replica.stage, params)
        parts.lockstep(dies, steps.step)
        if isinstance(steps.placement, DynamicPlacement):
            graph.attach(Moved(steps.placement))


class Moved(Hook):
    """Records the results of Algorithm 2: its decisions, and layers and experts that it moved."""

    def __init__(self, placement: DynamicPlacement) -> None:
        self.counters = placement.counters


def _expert_steps(parts: Parts, stage: Stage, params: LoadParams) -> ExpertSteps:
    """Return the routed experts of the stage's decode dies."""
    decoder = stage.decoder
    dies = len(stage.roles["decode"])
    group = group_of(decoder, parts.deployment.gpu, dies)
    return expert_steps(
        params,
        group,
        decoder.layers - decoder.dense_layers,
        decoder.experts,
        decoder.experts_per_token,
        dies,
        int(parts.stream("experts").integers(2**62)),
        asyncio.get_running_loop().time,
    )
