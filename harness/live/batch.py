"""Documents beside the users of an endpoint: whom they go to, and what they are."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.client.params import ClientParams
from harness.live.target import TargetParams
from workloads.generators.batch import OfflineParams, offline
from workloads.seeds import child_seed
from workloads.trace import Trace
from workloads.transforms.combine import labelled

ONLINE, BATCH = "online", "batch"
"""The classes of a run with a batch beside."""
SHORTEST_S = 0.25
"""A document takes so long on average at least, so that there are enough of them. [chosen]"""
LONGEST_DRAIN_S = 300.0
"""And for so long after the users' duration. [chosen]"""


def batch_target(target: TargetParams) -> TargetParams:
    """Where documents go: to chat completions, with one process."""
    changes = {"url": target.batch_url or target.url, "dialect": "text", "shards": 1, "scrape": None}
    return TargetParams.model_validate({**target.model_dump(), **changes, "batch_url": None})


def batch_client(target: TargetParams) -> ClientParams:
    """A closed loop, until it is stopped."""
    return ClientParams.model_validate({"c": target.batch, "playback": "none"})


def batch_trace(target: TargetParams, client: ClientParams, seed: int) -> Trace:
    """Documents enough for the users' run; the same ones, whatever else differs, for the same seed."""
    assert target.batch and client.stop_after_s is not None
    count = target.batch * math.ceil((client.stop_after_s + LONGEST_DRAIN_S) / SHORTEST_S)
    params = {"requests": count, "shape": target.document_shape, "network_ms": 0}
    drawn = offline(OfflineParams.model_validate(params), child_seed(seed, BATCH))
    columns = drawn.columns()
    for name, most in (
        ("input_tokens", target.document_input_tokens),
        ("output_tokens", target.document_output_tokens),
    ):
        columns[name] = np.minimum(columns[name], most)
    header = drawn.header
    cut = Trace.from_columns(columns, generator=header.generator, params=header.params, seed=header.seed)
    return labelled(cut, BATCH, priority=target.document_priority)


def in_class(turns: Mapping[str, Any]) -> dict[str, Any]:
    """The users' turns as those of their class."""
    return {**turns, "request_class": ONLINE, "priority": 0.0}
