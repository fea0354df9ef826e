"""Replay of RAGPulse, a week of a university's question answering: workload `ragpulse`, its published JSON
lines.

Times are seconds in quotes. How many tokens the history of a request has is in the tables beside the trace
(`3_history.jsonl`): with it, the history is taken from there and the rest (system prompt, passages, query) is
new. Without it, the whole input is new and a session's context is the input and reply before.
"""

from pathlib import Path
from typing import Any

import numpy as np

from workloads.files.json_file import JsonFile
from workloads.replays.replay import ReplayParams, Rows, clean, replay
from workloads.trace import Trace

HISTORY_TABLE = "3_history.jsonl"


def ragpulse(params: ReplayParams, seed: int) -> Trace:
    """Typed turns at their recorded times; UserError names file, line and field of bad input."""
    notes: list[str] = []
    return replay("ragpulse", read_ragpulse(params, notes), params, seed, notes)


def read_ragpulse(params: ReplayParams, notes: list[str]) -> Rows:
    """The answered requests of a file in the order of time."""
    file = JsonFile(params.path, params.limit, params.skip_bad)
    time_s = file.times(file.require(["timestamp"]))
    names = file.values(file.require(["session_id"]), str, "a name")
    inputs = file.counts(file.require(["input_length"]))
    outputs = file.counts(file.require(["output_length"]))
    parts = file.values(file.require(["hash_ids"]), dict, "an object")
    history = _history_tokens(file, parts, notes)
    if history is not None:
        file.refuse(history >= inputs, "input_length", "is no more than the history it contains")
        history = np.minimum(history, inputs)
        inputs = inputs - history
    session = np.array([name or "" for name in names], object)
    return clean(Rows(time_s, session, inputs, outputs, history), file, notes)


def _history_tokens(file: JsonFile, parts: list[Any], notes: list[str]) -> np.ndarray | None:
    """Tokens of the conversation within each request, or None where the table of them is not at hand."""
    table = Path(file.path).with_name(HISTORY_TABLE)
    if not table.exists():
        notes.append(f"no {HISTORY_TABLE} beside the trace: the input of each request is taken as new")
        return None
    lengths = JsonFile(table)
    ids = lengths.whole(lengths.require(["history_id"]))
    tokens = dict(zip(ids.tolist(), lengths.counts(lengths.require(["token_length"])).tolist(), strict=True))
    known = [_known(part, tokens) for part in parts]
    unknown = np.array([ids is None for ids in known])
    file.refuse(unknown, "hash_ids", f"has no history that {HISTORY_TABLE} knows")
    return np.array([sum(tokens[i] for i in ids or ()) for ids in known], np.int64)


def _known(part: Any, tokens: dict[int, int]) -> list[int] | None:
    ids = part.get("history") if isinstance(part, dict) else None
    good = isinstance(ids, list) and all(isinstance(i, int) and i in tokens for i in ids)
    return ids if good else None
