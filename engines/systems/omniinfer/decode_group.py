"""What a group of decode dies asks OmniPlacement and OmniAttn for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from engines.devices.lockstep import ALL_TO_ALL_S
from engines.systems.omniinfer.attention_pattern import compressed
from engines.systems.omniinfer.experts import expert_steps, group_of

if TYPE_CHECKING:
    from engines.core.stage import Stage
    from engines.parts import Parts
    from engines.systems.omniinfer.attention_params import AttentionParams
    from engines.systems.omniinfer.placement_params import LoadParams


def compressed_decode(stage: Stage, params: AttentionParams) -> Stage:
    """The stage whose decode replicas attend as the parameters say; prefill replicas see everything."""
    own = compressed(stage.as_role("decode"), params)
    fields = {name: getattr(own, name) for name in ("window", "sinks", "windowed_layers")}
    return replace(stage, of_role=stage.of_role | {"decode": stage.of_role.get("decode", {}) | fields})


def experts_s(parts: Parts, stage: Stage, params: LoadParams) -> Callable[[Sequence[int]], float]:
    """Seconds of the routed experts of a step of the stage's decode dies."""
    decoder = stage.decoder
    group = replace(group_of(decoder, parts.deployment.gpu), latency_s=ALL_TO_ALL_S)
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
