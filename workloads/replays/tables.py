"""Replay of anybody's table of requests: workload `sessions`. CSV, JSON lines, JSON or Parquet, packed or not.

A column is found by its name, in any spelling (`promptTokens`, `Prompt Tokens`, `usage.prompt_tokens`) and with a unit
at its end (`arrival_ms`); `columns` names others. Lengths are numbers of tokens, or are estimated from texts.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field

from workloads.errors import UserError, nearest, printable
from workloads.files.any_file import open_rows
from workloads.files.row_file import RowFile
from workloads.files.sharegpt_file import CHARS_PER_TOKEN, ROLES, text_of, tokens_of
from workloads.replays.replay import ReplayParams, Rows, clean, plain, replay, split_sessions, timed, without_unit
from workloads.trace import Trace


@dataclass(frozen=True)
class Role:
    """The role of a column. `names`: of the columns that are taken for it, the first ones first. `hints`: parts of
    names that may be others."""

    what: str
    names: tuple[str, ...]
    hints: tuple[str, ...] = ()


COLUMNS = {
    "t": Role(
        "time",
        (
            "t", "timestamp", "arrival_time", "arrival_timestamp", "arrival", "arrived_at", "arrived", "request_time",
            "request_timestamp", "request_created_at", "start_time", "start_timestamp", "started_at", "start",
            "created_at", "created", "time", "datetime", "date", "ts",
        ),
        ("time", "arriv", "start", "date", "created", "when"),
    ),
    "session": Role(
        "session", ("session_id", "session", "conversation_id", "conv_id", "chat_id", "dialog_id", "thread_id")
    ),
    "new": Role("new tokens of the prompt", ("query", "q_tok", "new_tokens", "query_tokens")),
    "input": Role(
        "tokens or text of the whole prompt",
        (
            "input_tokens", "prompt_tokens", "input_length", "prompt_length", "input_len", "prompt_len", "isl",
            "num_prefill_tokens", "prefill_tokens", "context_tokens", "request_tokens", "input_toks", "prompt_size",
            "num_input_tokens", "num_prompt_tokens", "tokens_prompt", "input_token_count", "prompt_token_count",
            "prompt_tokens_count", "messages", "prompt", "text_input", "input", "question", "text",
        ),
        ("prompt", "input", "context", "request", "prefill", "question", "query", "message"),
    ),
    "history": Role("tokens of the prompt that came before", ("h_tok", "history_tokens")),
    "output": Role(
        "tokens or text of the reply",
        (
            "output_tokens", "completion_tokens", "output_length", "output_len", "completion_length", "response_length",
            "osl", "num_decode_tokens", "decode_tokens", "generated_tokens", "response_tokens", "reply_tokens",
            "output_toks", "token_size", "num_output_tokens", "tokens_completion", "output_token_count",
            "completion_token_count", "output_tokens_count", "output", "completion", "response", "answer",
            "output_text", "max_tokens", "max_completion_tokens",
        ),
        ("output", "completion", "response", "generat", "decode", "answer", "reply"),
    ),
    "delay": Role("pause before a later request of a session", ("delay",)),
}  # fmt: skip
"""Role of a column, as `columns` names it -> the names by which it is known, without units."""


class TableParams(ReplayParams):
    """Extends ReplayParams by what the names of a table leave open."""

    columns: dict[Literal["t", "session", "new", "input", "history", "output", "delay"], str] | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="columns by what they are for: t, session, input (whole prompts), new (their new tokens), history, "
        "output, delay; default: by their names",
    )
    prompts: Literal["whole", "new"] | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="whether prompts hold what their session said before; default: by their lengths",
    )


def sessions(params: TableParams, seed: int) -> Trace:
    """Typed turns at their recorded times; UserError names file, row and column of bad input."""
    notes: list[str] = []
    return replay("sessions", read_sessions(params, notes), params, seed, notes)


def read_sessions(params: TableParams, notes: list[str]) -> Rows:
    """Return the answered requests of a file in the order of time.

    Where the log states the whole prompt and the history in it, the rest (query, retrieved passages, system prompt) is
    new. Where it states new tokens, a session's own turns are its history. Of whole prompts the lengths say whether
    they hold the turns before. UserError that names all columns that are missing.
    """
    file = open_rows(params.path, params.limit, params.skip_bad)
    found = _found(file, params.columns or {})
    _check_all(file, found)
    session = file.text(found["session"]) if "session" in found else np.full(len(file), "", object)
    # The documented layout and RAGPulse's have s.
    unit = "s" if found.get("t") == "t" or found.get("history") == "h_tok" else None
    time_s, delay_s = timed(file, found.get("t"), found.get("delay"), session, params, unit, notes)
    said = [f"{role} from {found[role]!r}" for role in COLUMNS if role in found]
    history = None
    if "input" in found and "history" in found:
        history = file.counts(found["history"])
        prompt = _lengths(file, found["input"], "prompts", notes) - history
        file.refuse(prompt < 0, found["input"], f"is less than {found['history']!r} of the same row")
    else:
        prompt = _lengths(file, found.get("new") or found["input"], "prompts", notes)
    if "output" in found:
        reply = _lengths(file, found["output"], "replies", notes)
    else:
        reply = np.array([_own(value) for value in file.optional(found["input"])])
    notes.insert(0, f"columns by their names: {printable(', '.join(said))}")
    rows = clean(Rows(time_s, session, prompt, reply, history, delay_s), file, notes)
    if history is not None or "new" in found or "session" not in found:
        return rows
    return split_sessions(rows, params.prompts, notes)


def _found(file: RowFile, given: dict[Any, str]) -> dict[str, str]:
    """Return the column of each role; `given`: the columns that the user names."""
    for role, column in given.items():
        if column not in file.columns:
            raise UserError(f"{file.path} has no column {column!r} for {role}.{nearest(column, file.columns)}")
    taken = set(given.values())
    known: dict[str, str] = {}
    for column in file.columns:
        known.setdefault(without_unit(column)[0], column)
    found = dict(given)
    for role, meaning in COLUMNS.items():
        names = (known[name] for name in meaning.names if name in known and known[name] not in taken)
        if role not in found and (column := next(names, None)) is not None:
            found[role] = column
    file.used |= set(found.values())
    return found


def _check_all(file: RowFile, found: dict[str, str]) -> None:
    """UserError that names all roles without a column, with a mapping."""
    has_reply = "output" in found or ("input" in found and any(map(_own, file.optional(found["input"])[:100])))
    lacking = {"t": "t" in found or "delay" in found, "input": "input" in found or "new" in found, "output": has_reply}
    missing = [role for role, there in lacking.items() if not there]
    if not missing:
        return
    left = [name for name in file.columns if name not in found.values()]
    options = []
    for role in missing:
        likely = [name for name in left if any(hint in name.lower() for hint in COLUMNS[role].hints)]
        options.append(f"--column {role}={likely[0] if len(likely) == 1 else 'NAME'}")
    what = " and ".join(f"{COLUMNS[role].what} ({role})" for role in missing)
    raise UserError(
        f"{file.path} has no column for the {what}, by any name that is known; say which it is: "
        f"rehearse replay {file.path} {' '.join(options)}. Its columns: {printable(', '.join(file.columns))}."
    )


def _lengths(file: RowFile, column: str, what: str, notes: list[str]) -> np.ndarray:
    """Return a column of numbers of tokens, or of texts, whose tokens are estimated."""
    if np.mean(np.isnan(file.as_float(column))[file.good]) <= 0.5:
        if plain(column).startswith("max_"):
            notes.append(f"{what} as long as {column!r} allows")
        return file.counts(column)
    other: Counter[str] = Counter()
    tokens = [_tokens(value, other) for value in file.optional(column)]
    if not any(tokens):
        return file.counts(column)  # names the first that is no number
    notes.append(f"{what}: tokens of the text in {column!r}, ~{CHARS_PER_TOKEN:g} characters each")
    notes += [f"{n} parts of messages left out: {kind}" for kind, n in other.items()]
    return np.array(tokens, np.int64)


def _tokens(value: Any, other: Counter[str]) -> int:
    """Return the tokens of a text, or of the messages before the model's reply; 0 for anything else."""
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        texts = [text_of(each.get("content"), other) for each in value[: -1 if _own(value) else None]]
    else:
        texts = [value]
    return math.ceil(sum(tokens_of(text) for text in texts if isinstance(text, str)))


def _own(value: Any) -> int:
    """Return the tokens of the model's message with which a list of messages ends; 0 without one."""
    last = value[-1] if isinstance(value, list) and value else None
    if not isinstance(last, dict) or ROLES.get(str(last.get("role"))) != "model":
        return 0
    return math.ceil(tokens_of(text_of(last.get("content"), Counter()) or ""))
