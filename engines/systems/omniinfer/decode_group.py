"""The use of OmniPlacement and OmniAttn by a group of decode dies."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from engines.core.stage import ENTRY, AttentionWindow
from engines.devices.expert_parallel import group_of
from engines.devices.extensions import InLockstep
from engines.systems.omniinfer.attention_pattern import compressed
from engines.systems.omniinfer.experts import expert_steps
from workloads.errors import UserError

if TYPE_CHECKING:
    from engines.builder import Parts
    from engines.core.stage import Stage
    from engines.speaking.pipeline import Pipeline
    from engines.systems.omniinfer.omniinfer_params import AttentionParams, LoadParams, ReplicaParams


def compressed_decode(stage: Stage, params: AttentionParams) -> Stage:
    """The stage whose decode replicas attend as the parameters say; prefill replicas see everything."""
    window = compressed(stage.as_role("decode"), params).extension(AttentionWindow)
    return stage if window is None else stage.with_role("decode", window)


def beside_replicas(stage: Stage, params: ReplicaParams) -> Stage:
    """The stage whose decode replicas have room for redundant slots, which is taken off their KV pools. UserError where
    too little is left of these."""
    if "decode" not in stage.roles:
        return stage
    decode, decoder = stage.as_role("decode"), stage.decoder
    layers = decoder.layers - decoder.dense_layers
    units = layers if params.redundant_slots is None else params.redundant_slots
    taken = math.ceil(units * decoder.expert_params * decoder.layer_dtype_bytes / decode.block_bytes)
    blocks = decode.kv_blocks - taken
    if (blocks - 1) * decode.block_size < decode.max_model_len:
        raise UserError(
            f"redundant_slots={units} take {taken} of the {decode.kv_blocks} KV blocks of a die, and what is left does "
            f"not hold one request of {decode.max_model_len} tokens; take fewer slots."
        )
    return stage.with_role("decode", kv_blocks=blocks)


def place(graph: Pipeline, parts: Parts, params: LoadParams) -> None:
    """Let the decode dies step together, if they do, with experts that stand as the parameters say."""
    together = [each for each in graph.at(ENTRY) if each.replica.stage.extension(InLockstep) is not None]
    if together:
        parts.lockstep(together, experts_s(parts, together[0].replica.stage, params))


def experts_s(parts: Parts, stage: Stage, params: LoadParams) -> Callable[[Sequence[int]], float]:
    """Seconds of the routed experts of a step of the stage's decode dies."""
    decoder = stage.decoder
    group = group_of(decoder, parts.deployment.gpu)
    steps = expert_steps(
        params,
        group,
        decoder.layers - decoder.dense_layers,
        decoder.experts,
        decoder.experts_per_token,
        len(stage.roles["decode"]),
        int(parts.stream("experts").integers(2**62)),
        asyncio.get_running_loop().time,
    )
    return steps.step
