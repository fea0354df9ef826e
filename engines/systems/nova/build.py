"""Nova's loops as what drives a replica, and a stage as they run it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from engines.core.engine import StageEngine
from engines.core.stage import ENTRY, Stage
from engines.devices.extensions import SmShare
from engines.systems.nova.engine import PassEngine
from engines.systems.nova.params import StreamParams
from engines.systems.nova.rules import Partition, Rule, Streams, Turns
from workloads.errors import UserError

RULES: Mapping[str, Callable[[Any], Rule]] = {"nova": Partition, "multi_stream": Streams, "pf_limit": Turns}


def loop(order: str, stage: str, params: StreamParams) -> Callable[..., StageEngine] | None:
    """At the stage that requests come to first."""
    return partial(PassEngine, RULES[order](params)) if stage == ENTRY else None


def as_shared(order: str, stage: Stage, params: StreamParams) -> Stage:
    """On a GPU whose SMs are shared. UserError for a decoder that does not see."""
    if stage.decoder.vision_encoder is None:
        raise UserError(
            f"order={order} runs vision beside decode, and the {stage.name} of this deployment has no vision "
            "encoder; set deployment=cogagent_a6000 or another that has."
        )
    return stage.extended(SmShare(1.0))
