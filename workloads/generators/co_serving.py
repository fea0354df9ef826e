"""Interactive and batch requests on one service: workloads `co_serving`, as ConServe and others combine them, and
`voice_batch`, which asks of a voice service how much batch work it can carry while it talks.

People type to a chat service and want its answers soon; documents wait to be worked off meanwhile: all of them from the
start, or a backlog of them that never runs dry, as where batch work is always at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from workloads.columns.classes import MOST_PRIORITY
from workloads.distributions import arrivals
from workloads.distributions.lengths import BURSTGPT_CHAT
from workloads.generators import burstgpt_fit
from workloads.generators.batch import CONTEXT, OfflineParams, offline
from workloads.generators.open_loop import GammaParams, gamma
from workloads.generators.voice import VoiceParams, voice
from workloads.seeds import Streams, child_seed
from workloads.trace import Columns, Trace
from workloads.transforms.combine import changed, combined, labelled, mixture
from workloads.workload_params import UserParams

ONLINE, BATCH = "online", "batch"
_ROOM = 4096  # the longest reply of either class, which has to fit into the context with its document
_LONGER = 1.25
"""Batch jobs last this multiple of the online load's duration, for an engine that falls behind. [chosen]"""
_LEAST_S = 60.0
"""Least duration of the batch jobs, s: the last replies take as long with few users as with many. [chosen]"""

_PILOT = 512
"""Documents drawn to estimate their mean length. [chosen]"""


def _unset(default: Any) -> Callable[[Any], bool]:
    """Parameters younger than the first points are left out of their ids while they have their default."""
    return lambda value: value == default


class CoServingParams(UserParams):
    """Parameters of text in, text out; those not listed here are as in `gamma` and `offline`."""

    p: Literal[0] = Field(0, description="nothing is spoken, so nobody interrupts")
    requests: int = Field(200, ge=1, le=10_000_000, description="online requests")
    rate: float = Field(1.0, ge=1e-6, le=1e6, description="online arrivals per second, on average")
    online: Literal["gamma", "burstgpt"] = Field(
        "gamma",
        exclude_if=_unset("gamma"),
        description="how they come: gamma, with gaps of `cv`; burstgpt, in the bursts of workload `burstgpt_fit`",
    )
    cv: float = Field(
        1.0,
        ge=0.01,
        le=100,
        description="coefficient of variation of their gaps; 1 is Poisson, above it bursts; with online=gamma",
    )
    chat: Literal["sharegpt", "burstgpt"] = Field(
        "sharegpt",
        exclude_if=_unset("sharegpt"),
        description="whose lengths they have: sharegpt; burstgpt, as ConServe's Table 1 has them",
    )
    input_tokens: int | None = Field(
        None, ge=1, le=1_000_000, exclude_if=_unset(None), description="every online input is so long, instead"
    )
    output_tokens: int | None = Field(
        None, ge=1, le=1_000_000, exclude_if=_unset(None), description="every online output is so long, instead"
    )
    ttft_deadline_s: float | None = Field(
        1.5, gt=0, le=1e6, description="an online request's first token is due so long after it; null: never"
    )
    tbt_deadline_s: float | None = Field(
        0.2, gt=0, le=1e6, description="longest time between an online reply's tokens; null: any"
    )
    documents: int = Field(
        100,
        ge=0,
        le=10_000_000,
        description="batch requests, all there from the start; 0: online alone; with `backlog` as many as it needs",
    )
    backlog: int | None = Field(
        None,
        ge=1,
        le=100_000,
        exclude_if=_unset(None),
        description="instead, keep this number of batch requests at the server: as one ends the next is sent, and with "
        "the last online request all are aborted; default: all are sent at the start, and the run lasts until they end",
    )
    backlog_tps: float = Field(
        60_000.0,
        gt=0,
        le=1e9,
        exclude_if=_unset(60_000.0),
        description="the trace holds documents for a server that processes this number of tokens per second; a backlog "
        "that runs dry says so",
    )
    shape: Literal["mixed", "dureader", "multinews", "vcsum"] = Field(
        "mixed", description="which of ConServe's offline sets their lengths are of"
    )
    path: Path | None = Field(
        None,
        exclude_if=_unset(None),
        description="file to take the documents' lengths of, as in `offline`; set shape to which set it is",
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

    @model_validator(mode="after")
    def _one_way_to_say_it(self) -> CoServingParams:
        given = self.model_fields_set
        if (self.input_tokens is None) != (self.output_tokens is None):
            raise ValueError("input_tokens and output_tokens are set together; set both or leave both out")
        if self.input_tokens is not None and self.chat != "sharegpt":
            raise ValueError(f"input_tokens={self.input_tokens} replaces chat={self.chat}; leave one out")
        if self.path is not None and self.shape == "mixed":
            raise ValueError(f"path={self.path} holds one set; set shape to which it is or leave path out")
        if self.online != "gamma" and self.cv != 1:
            raise ValueError(f"cv={self.cv:g} is of online=gamma, and online={self.online}; leave one out")
        if self.backlog is not None and self.documents != 100:
            raise ValueError(
                f"backlog={self.backlog} takes as many documents as it needs (backlog_tps), and "
                f"documents={self.documents}; leave one of them out"
            )
        if self.backlog is None and "backlog_tps" in given:
            raise ValueError(
                f"backlog_tps={self.backlog_tps:g} is of a backlog, and backlog is not set; set backlog too"
            )
        return self


def co_serving(params: CoServingParams, seed: int) -> Trace:
    """Both classes in one trace; each draws from a seed of its own, so that neither changes the other."""
    online = labelled(
        _online(params, child_seed(seed, ONLINE)),
        ONLINE,
        priority=0,
        ttft_deadline_s=params.ttft_deadline_s,
        tbt_deadline_s=params.tbt_deadline_s,
    )
    parts = [online]
    count = params.documents
    if params.backlog is not None:
        count = _enough(params, params.backlog, float(online.columns()["arrival_s"].max()), seed)
    if count:
        parts.append(labelled(_batch(params, count, seed), BATCH, priority=params.batch_priority))
    merged = combined(parts)
    columns = _cut(merged.columns(), params)
    notes = [
        *merged.header.notes,
        f"inputs cut to {params.max_input_tokens}, outputs to {params.max_output_tokens} tokens",
    ]
    if params.backlog is not None:
        columns["backlog"] = np.where(columns["request_class"] == BATCH, params.backlog, np.nan)
        notes.append(f"a backlog of {params.backlog} documents, of {count}: enough for {params.backlog_tps:g} tokens/s")
    return mixture("co_serving", params, seed, parts, columns, notes)


def _online(params: CoServingParams, seed: int) -> Trace:
    """Requests at their times; how they come changes no lengths, and lengths no times."""
    people = params.model_dump(include={"requests", "rate", "cv", "network_ms"})
    people |= {"modality": "text", "reply": "text"}
    trace, streams, n = gamma(GammaParams.model_validate(people), seed), Streams(seed), params.requests
    if params.online == "burstgpt":
        times = arrivals.modulated(
            streams("burstgpt"), params.rate, burstgpt_fit.CV, burstgpt_fit.SWING, burstgpt_fit.REGIME, n
        )
        trace = changed(trace, trace.columns() | {"arrival_s": times}, "arrivals as of burstgpt_fit")
    if params.input_tokens is not None:
        fixed = {"input_tokens": params.input_tokens, "output_tokens": params.output_tokens}
        note = f"lengths: {params.input_tokens} in, {params.output_tokens} out"
        trace = changed(trace, trace.columns() | {name: np.full(n, value) for name, value in fixed.items()}, note)
    elif params.chat == "burstgpt":
        drawn = {name: law.sample(streams(f"chat {name}"), n) for name, law in BURSTGPT_CHAT.items()}
        note = "; ".join(f"{name}: {law}" for name, law in BURSTGPT_CHAT.items())
        trace = changed(trace, trace.columns() | drawn, note)
    return trace


def _batch(params: CoServingParams, count: int, seed: int) -> Trace:
    papers = {"requests": count, "shape": params.shape, "network_ms": params.network_ms}
    if params.path is not None:
        papers["path"] = params.path
    return offline(OfflineParams.model_validate(papers), child_seed(seed, BATCH))


def _enough(params: CoServingParams, backlog: int, users_s: float, seed: int) -> int:
    """Return the number of documents that last until the last online user has gone."""
    few = _cut(_batch(params, _PILOT, seed).columns(), params)
    each = float((few["input_tokens"] + few["output_tokens"]).mean())
    return backlog + ceil(params.backlog_tps * max(users_s * _LONGER, users_s + _LEAST_S) / each)


def _cut(columns: Columns, params: CoServingParams) -> Columns:
    most = {"input_tokens": params.max_input_tokens, "output_tokens": params.max_output_tokens}
    return columns | {name: np.minimum(columns[name], tokens) for name, tokens in most.items()}


class VoiceBatchParams(VoiceParams):
    """Extends `voice` by a backlog of documents as in `co_serving`."""

    backlog: int = Field(
        32, ge=0, le=100_000, description="documents at the server at once, as long as somebody talks; 0: none"
    )
    documents: int = Field(
        2000, ge=1, le=10_000_000, description="documents that the trace holds; a backlog that runs dry says so"
    )
    shape: Literal["mixed", "dureader", "multinews", "vcsum"] = Field(
        "multinews", description="which of ConServe's offline sets their lengths are of"
    )
    batch_priority: int = Field(
        10, ge=1, le=MOST_PRIORITY, description="priority of the batch class; online is 0 and goes first"
    )
    max_document_tokens: int = Field(16_384, ge=1, le=1_000_000, description="longest document; longer ones are cut")


def voice_batch(params: VoiceBatchParams, seed: int) -> Trace:
    """Both classes in one trace; each draws from a seed of its own, so that neither changes the other."""
    given = params.model_dump()
    people = {name: given[name] for name in VoiceParams.model_fields}
    talk = voice(VoiceParams.model_validate(people), child_seed(seed, ONLINE))
    parts = [labelled(talk, ONLINE, priority=0)]
    if params.backlog:
        given = {"requests": params.documents, "shape": params.shape, "network_ms": params.network_ms}
        papers = OfflineParams.model_validate(given)
        parts.append(labelled(offline(papers, child_seed(seed, BATCH)), BATCH, priority=params.batch_priority))
    merged = combined(parts)
    columns = dict(merged.columns())
    batch = columns["request_class"] == BATCH
    longest = np.where(batch, params.max_document_tokens, columns["input_tokens"])
    columns["input_tokens"] = np.minimum(columns["input_tokens"], longest)
    columns["backlog"] = np.where(batch, params.backlog, np.nan)
    notes = [*merged.header.notes, f"documents cut to {params.max_document_tokens} tokens"]
    return mixture("voice_batch", params, seed, parts, columns, notes)
