"""Interactive and batch requests on one service: workload `co_serving`, as ConServe and others combine them.

People type to a chat service and want its answers soon; documents wait from the start to be worked off meanwhile.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from workloads.batch import CONTEXT, OfflineParams, offline
from workloads.classes import MOST_PRIORITY
from workloads.combine import combined, labelled
from workloads.open_loop import GammaParams, gamma
from workloads.params import UserParams
from workloads.seeds import child_seed
from workloads.trace import Trace

ONLINE, BATCH = "online", "batch"
_ROOM = 4096  # the longest reply of either class, which has to fit into the context beside its document


class CoServingParams(UserParams):
    """Text in, text out; what is not given here is as in `gamma` and `offline`."""

    p: Literal[0] = Field(0, description="nothing is spoken, so nobody interrupts")
    requests: int = Field(200, ge=1, le=10_000_000, description="online requests, ShareGPT-like lengths")
    rate: float = Field(1.0, ge=1e-6, le=1e6, description="online arrivals per second")
    cv: float = Field(
        1.0,
        ge=0.01,
        le=100,
        description="coefficient of variation of their gaps; 1 is Poisson, above it bursts",
    )
    ttft_deadline_s: float | None = Field(
        1.5, gt=0, le=1e6, description="an online request's first token is due so long after it; null: never"
    )
    tbt_deadline_s: float | None = Field(
        0.2, gt=0, le=1e6, description="longest time between an online reply's tokens; null: any"
    )
    documents: int = Field(100, ge=1, le=10_000_000, description="batch requests, all present at the start")
    shape: Literal["mixed", "dureader", "multinews", "vcsum"] = Field(
        "mixed", description="which of ConServe's offline sets their lengths are of"
    )
    batch_priority: int = Field(
        10, ge=1, le=MOST_PRIORITY, description="priority of the batch class; online is 0 and goes first"
    )
    max_input_tokens: int = Field(
        CONTEXT - _ROOM, ge=1, le=1_000_000, description="longest input of either class; longer ones are cut"
    )
    max_output_tokens: int = Field(
        _ROOM, ge=1, le=1_000_000, description="longest output of either class; longer ones are cut"
    )


def co_serving(params: CoServingParams, seed: int) -> Trace:
    """Both classes in one trace; each draws from a seed of its own, so that neither changes the other."""
    given = params.model_dump()
    people = {name: given[name] for name in ("requests", "rate", "cv", "network_ms")}
    people |= {"modality": "text", "reply": "text"}
    papers = {"requests": params.documents, "shape": params.shape, "network_ms": params.network_ms}
    online = labelled(
        gamma(GammaParams.model_validate(people), child_seed(seed, ONLINE)),
        ONLINE,
        priority=0,
        ttft_deadline_s=params.ttft_deadline_s,
        tbt_deadline_s=params.tbt_deadline_s,
    )
    batch = labelled(
        offline(OfflineParams.model_validate(papers), child_seed(seed, BATCH)),
        BATCH,
        priority=params.batch_priority,
    )
    merged = combined([online, batch])
    columns = merged.columns()
    for name, most in (
        ("input_tokens", params.max_input_tokens),
        ("output_tokens", params.max_output_tokens),
    ):
        columns[name] = np.minimum(columns[name], most)
    return Trace.from_columns(
        columns,
        generator="co_serving",
        params=params.model_dump(mode="json"),
        seed=seed,
        streams=[
            f"{part.header.generator}/{name}" for part in (online, batch) for name in part.header.streams
        ],
        notes=[
            *merged.header.notes,
            f"inputs cut to {params.max_input_tokens}, outputs to {params.max_output_tokens} tokens",
        ],
    )
