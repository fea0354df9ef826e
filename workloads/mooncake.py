"""Replay of Mooncake's traces: workload `mooncake`. Times are de-quantised, conversations found by their
blocks.

The conversation trace was recorded with a clock of about 3 s: 10 requests share each stamp, which replayed as
it stands makes bursts that no user made. Each request is moved by a uniform draw within the step of the
clock; the header says so. A trace whose stamps differ is left alone.

There are no session ids, but `hash_ids` name the blocks of 512 tokens of each prompt, and equal ids mean
equal content up to there. A request that begins with all full blocks of an earlier one continues that
conversation. What other sessions share (a system prompt, a document) is not kept: the notes say how much
reuse that was.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from workloads.json_file import JsonFile
from workloads.replay import ReplayParams, Rows, clean, replay, split_history
from workloads.seeds import stream
from workloads.trace import Trace

BLOCK = 512  # tokens per hash id (Mooncake, FAST'25 release)
SHARED_STAMPS = 0.5  # choice: quantised when more than half of the requests share the stamp of the one before


class MooncakeParams(ReplayParams):
    """As ReplayParams, with the clock of the recording."""

    jitter_s: float | None = Field(
        None,
        ge=0,
        le=3600,
        description="move each request by up to so much, s; default: the step of the clock",
    )


def mooncake(params: MooncakeParams, seed: int) -> Trace:
    """Typed requests near their recorded times; UserError names file, line and field of bad input."""
    notes: list[str] = []
    rows = read_mooncake(params, notes)
    rows.time_s = _dequantised(rows.time_s, params.jitter_s, seed, notes)
    return replay("mooncake", split_history(rows, notes), params, seed, notes)


def read_mooncake(params: ReplayParams, notes: list[str]) -> Rows:
    """The answered requests of a file in the order of time; their input holds the conversation so far."""
    file = JsonFile(params.path, params.limit, params.skip_bad)
    time_s = file.times(file.require(["timestamp"])) / 1000
    inputs = file.counts(file.require(["input_length"]))
    outputs = file.counts(file.require(["output_length"]))
    session = np.full(len(file), "", object)
    column = file.find(["hash_ids"])
    if column:
        blocks = [ids if _is_list_of_ids(ids) else None for ids in file.values(column, list, "a list")]
        file.refuse(np.array([ids is None for ids in blocks]), column, "is not a list of whole numbers")
        few = np.array(
            [ids is not None and len(ids) > -(-n // BLOCK) for ids, n in zip(blocks, inputs, strict=True)]
        )
        file.refuse(few, column, "has more blocks than the input has")
        session = _conversations([ids or [] for ids in blocks], inputs, notes)
    return clean(Rows(time_s, session, inputs, outputs, None), file, notes)


def _is_list_of_ids(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, int) for item in value)


def _conversations(blocks: list[list[int]], inputs: np.ndarray, notes: list[str]) -> np.ndarray:
    """Name of the conversation of each request: the latest whose full blocks it begins with, or its own."""
    names: list[str] = []
    open_at: dict[int, str] = {}  # last full block of the latest request of a conversation -> its name
    seen: set[int] = set()
    total = known = kept = 0
    for row, (ids, tokens) in enumerate(zip(blocks, inputs.tolist(), strict=True)):
        depth = next((i for i in range(len(ids), 0, -1) if ids[i - 1] in open_at), 0)
        name = open_at.pop(ids[depth - 1]) if depth else str(row)
        names.append(name)
        total, kept = total + len(ids), kept + depth
        known += next((i for i, block in enumerate(ids) if block not in seen), len(ids))
        seen.update(ids)
        full = min(tokens // BLOCK, len(ids))
        if full:
            open_at.setdefault(ids[full - 1], name)
    notes.append(
        f"{len(set(names))} conversations found by their blocks; {known / max(total, 1):.1%} of the blocks came "
        f"before, {kept / max(total, 1):.1%} in the same conversation; sharing between others is not kept"
    )
    return np.array(names, object)


def _dequantised(time_s: np.ndarray, jitter_s: float | None, seed: int, notes: list[str]) -> np.ndarray:
    """Times moved by U(0, jitter_s), handed out in the order of the file so that no two requests swap."""
    steps = np.diff(np.unique(time_s))
    if jitter_s is None:
        quantised = len(steps) and np.mean(np.diff(time_s) == 0) > SHARED_STAMPS
        jitter_s = float(np.median(steps)) if quantised else 0.0
    if jitter_s == 0:
        return time_s
    notes.append(
        f"recorded on {len(steps) + 1} distinct times, {np.median(steps) if len(steps) else 0:g} s apart: "
        f"each request moved by a uniform draw within {jitter_s:g} s"
    )
    return np.sort(time_s + jitter_s * stream(seed, "dequantise").random(len(time_s)))
