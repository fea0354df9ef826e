"""Nova's loops as what drives a replica, and a stage as they run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from rehearsal.engines.core.engine import StageEngine
from rehearsal.engines.core.stage import Stage
from rehearsal.engines.systems.nova.engine import PassEngine
from rehearsal.engines.systems.nova.rules import Partition, Streams, Turns
from rehearsal.workloads.errors import UserError

RULES = {"nova": Partition, "multi_stream": Streams, "pf_limit": Turns}


def loop(stage: str, params: Any) -> Callable[..., StageEngine] | None:
    """Of the thinker."""
    return partial(PassEngine, RULES[params.order](params)) if stage == "thinker" else None


def as_shared(stage: Stage, params: Any) -> Stage:
    """On a GPU whose SMs are shared. UserError for a decoder that does not see."""
    if stage.decoder.vision_encoder is None:
        raise UserError(
            f"order={params.order} runs vision beside decode, and the {stage.name} of this deployment has no vision "
            "encoder; set deployment=cogagent_a6000 or another that has."
        )
    return replace(stage, sm_share=1.0)
