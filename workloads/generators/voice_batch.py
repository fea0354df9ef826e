"""Spoken dialogues with batch jobs on documents: workload `voice_batch`.

What ConServe asks of a chat service, asked of a voice service: how much batch work it can carry while it talks.
"""

from typing import Literal

import numpy as np
from pydantic import Field

from workloads.columns.classes import MOST_PRIORITY
from workloads.generators.batch import OfflineParams, offline
from workloads.generators.voice import VoiceParams, voice
from workloads.seeds import child_seed
from workloads.trace import Trace
from workloads.transforms.combine import combined, labelled, mixture

ONLINE, BATCH = "online", "batch"


class VoiceBatchParams(VoiceParams):
    """Extends `voice` by a backlog of documents as in `co_serving`."""

    backlog: int = Field(
        32,
        ge=0,
        le=100_000,
        description="documents at the server at once, as long as somebody talks; 0: none",
    )
    documents: int = Field(
        2000,
        ge=1,
        le=10_000_000,
        description="documents that the trace holds; a backlog that runs dry says so",
    )
    shape: Literal["mixed", "dureader", "multinews", "vcsum"] = Field(
        "multinews", description="which of ConServe's offline sets their lengths are of"
    )
    batch_priority: int = Field(
        10, ge=1, le=MOST_PRIORITY, description="priority of the batch class; online is 0 and goes first"
    )
    max_document_tokens: int = Field(
        16_384, ge=1, le=1_000_000, description="longest document; longer ones are cut"
    )


def voice_batch(params: VoiceBatchParams, seed: int) -> Trace:
    """Both classes in one trace; each draws from a seed of its own, so that neither changes the other."""
    given = params.model_dump()
    people = {name: given[name] for name in VoiceParams.model_fields}
    talk = voice(VoiceParams.model_validate(people), child_seed(seed, ONLINE))
    parts = [labelled(talk, ONLINE, priority=0)]
    if params.backlog:
        given = {"requests": params.documents, "shape": params.shape, "network_ms": params.network_ms}
        papers = OfflineParams.model_validate(given)
        parts.append(
            labelled(offline(papers, child_seed(seed, BATCH)), BATCH, priority=params.batch_priority)
        )
    merged = combined(parts)
    columns = dict(merged.columns())
    batch = columns["request_class"] == BATCH
    longest = np.where(batch, params.max_document_tokens, columns["input_tokens"])
    columns["input_tokens"] = np.minimum(columns["input_tokens"], longest)
    columns["backlog"] = np.where(batch, params.backlog, np.nan)
    notes = [*merged.header.notes, f"documents cut to {params.max_document_tokens} tokens"]
    return mixture("voice_batch", params, seed, parts, columns, notes)
