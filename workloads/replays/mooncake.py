"""Replay of Mooncake's traces: workload `mooncake`. Times are de-quantised, conversations found by their
blocks.

The conversation trace was recorded with a clock of about 3 s: 10 requests share each stamp, which replayed as
it stands makes bursts that no user made. Each request is moved by a uniform draw within the step of the
clock; the header says so. A trace whose stamps differ is left alone.

There are no session ids, but `hash_ids` name the blocks of 512 tokens of each prompt, and equal ids mean
equal content up to there: `workloads.replays.conversations` finds those who continue an earlier request. What other
sessions share (a system prompt, a document) is not kept: the notes say how much reuse that was.
"""

import numpy as np
from pydantic import Field

from workloads.files.json_file import JsonFile
from workloads.replays.conversations import Log, Rule, follow
from workloads.replays.replay import ReplayParams, Rows, clean, replay, split_history
from workloads.seeds import stream
from workloads.trace import Trace

BLOCK = 512  # tokens per hash id (Mooncake, FAST'25 release)
SHARED_STAMPS = 0.5  # choice: quantised when more than half of the requests share the stamp of the one before


class MooncakeParams(ReplayParams):
    """Extends ReplayParams by the clock of the recording and the conversations that it does not name."""

    jitter_s: float | None = Field(
        None,
        ge=0,
        le=3600,
        description="move each request by up to so much, s; default: the step of the clock",
    )
    conversations: Rule = Field(
        "strict",
        description="join requests by their blocks: never, where they tell a conversation from strangers under one "
        "prompt, or also where they do not but nothing speaks against it",
    )


def mooncake(params: MooncakeParams, seed: int) -> Trace:
    """Typed requests near their recorded times; UserError names file, line and field of bad input."""
    notes: list[str] = []
    rows = read_mooncake(params, notes)
    rows.time_s = _dequantised(rows.time_s, params.jitter_s, seed, notes)
    return replay("mooncake", split_history(rows, notes), params, seed, notes)


def read_mooncake(params: MooncakeParams, notes: list[str]) -> Rows:
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
        blocks = [ids if ids and good else [] for ids, good in zip(blocks, file.good, strict=True)]
        session = _conversations(blocks, inputs, outputs, time_s, params.conversations, notes)
    return clean(Rows(time_s, session, inputs, outputs, None), file, notes)


def _is_list_of_ids(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, int) for item in value)


def _conversations(
    blocks: list[list[int]],
    inputs: np.ndarray,
    outputs: np.ndarray,
    time_s: np.ndarray,
    rule: Rule,
    notes: list[str],
) -> np.ndarray:
    """Name of the conversation of each request."""
    full = [min(tokens // BLOCK, len(ids)) for tokens, ids in zip(inputs.tolist(), blocks, strict=True)]
    found = follow(Log(blocks, full, inputs.tolist(), outputs.tolist(), time_s.tolist()), rule)
    notes.append(
        f"conversations={rule}: {found.joined} of {len(blocks)} requests joined to an earlier one whose full blocks "
        f"they begin with; {found.shared:.1%} of the blocks came before, {found.kept:.1%} in the same conversation; "
        "sharing between others is not kept"
    )
    notes += [f"{n} requests not joined to such a one: {why}" for why, n in found.refused.most_common()]
    return found.conversation.astype(str).astype(object)


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
