"""Replays of logs of requests as CSV: workloads `burstgpt` (a university's ChatGPT and GPT-4 service), `azure` (the
Azure LLM inference traces of 2023 and 2024; single requests) and `sessions` (anybody's, times and token counts)."""

import numpy as np
import pandas as pd

from workloads.errors import UserError
from workloads.files.csv_file import CsvFile
from workloads.files.row_file import MAX_S
from workloads.replays.replay import ReplayParams, Rows, clean, replay, split_history, times
from workloads.trace import Trace

# Columns of `sessions`: our names first, then the names in RAGPulse's sessions_derived.csv.
TIME = ["t", "timestamp"]
SESSION = ["session_id"]
QUERY = ["query", "q_tok"]
OUTPUT = ["output", "output_length"]
INPUT = ["input_length"]
HISTORY = ["h_tok"]


def burstgpt(params: ReplayParams, seed: int) -> Trace:
    """Typed requests at their recorded times; UserError names file, row and column of bad input."""
    notes: list[str] = []
    rows = split_history(read_burstgpt(params, notes), notes)
    return replay("burstgpt", rows, params, seed, notes)


def read_burstgpt(params: ReplayParams, notes: list[str]) -> Rows:
    """Return the answered requests of a file; their input contains the conversation so far, see `split_history`.

    Both published layouts are read by column name: 6 columns, and 8 with `Session ID` and `Elapsed time`.
    """
    file = CsvFile(params.path, params.limit, params.skip_bad)
    session = file.find(["Session ID", "SessionID"])  # as the files and as their description call it
    rows = Rows(
        time_s=times(file, file.require(["Timestamp"]), params, "s"),
        session=file.text(session) if session else np.full(len(file), "", object),
        input_tokens=file.counts(file.require(["Request tokens"])),
        output_tokens=file.counts(file.require(["Response tokens"])),
        history_tokens=None,
    )
    return clean(rows, file, notes, ["Model", "Elapsed time", "Total tokens", "Log Type"])


def azure(params: ReplayParams, seed: int) -> Trace:
    """Typed requests at their recorded times; UserError names file, row and column of bad input."""
    notes: list[str] = []
    return replay("azure", read_azure(params, notes), params, seed, notes)


def read_azure(params: ReplayParams, notes: list[str]) -> Rows:
    """The answered requests of a file, times in s since 1970."""
    if params.unit is not None:
        raise UserError(f"unit={params.unit}: the times of azure are dates, which have none; leave unit out.")
    file = CsvFile(params.path, params.limit, params.skip_bad)
    time = file.require(["TIMESTAMP"])
    # Seven decimals, and in the traces of 2024 a time zone in some rows.
    stamps = pd.to_datetime(pd.Series(file.text(time)), format="ISO8601", errors="coerce", utc=True)
    file.refuse(stamps.isna().to_numpy(), time, "is not a date and time")
    since_1970 = stamps.dt.tz_localize(None).to_numpy("datetime64[us]").astype(np.int64) / 1e6
    file.refuse((since_1970 < 0) | (since_1970 > MAX_S), time, "is before 1970 or in a far future")
    rows = Rows(
        time_s=since_1970,
        session=np.full(len(file), "", object),
        input_tokens=file.counts(file.require(["ContextTokens"])),
        output_tokens=file.counts(file.require(["GeneratedTokens"])),
        history_tokens=None,
    )
    return clean(rows, file, notes)


def sessions(params: ReplayParams, seed: int) -> Trace:
    """Typed turns at their recorded times; UserError names file, row and column of bad input."""
    notes: list[str] = []
    return replay("sessions", read_sessions(params, notes), params, seed, notes)


def read_sessions(params: ReplayParams, notes: list[str]) -> Rows:
    """The answered requests of a file in the order of time.

    Where the log states the whole input and the history in it, the history is taken from it and the rest (query,
    retrieved passages, system prompt) is new. Else the query is new and the session's own turns are its history.
    """
    file = CsvFile(params.path, params.limit, params.skip_bad)
    time_s = times(file, file.require(TIME), params, "s")
    session = file.text(file.require(SESSION))
    output_tokens = file.counts(file.require(OUTPUT))
    whole, past = file.find(INPUT), file.find(HISTORY)
    history_tokens = None
    if whole and past:
        history_tokens = file.counts(past)
        input_tokens = file.counts(whole) - history_tokens
        file.refuse(input_tokens < 0, whole, f"is less than {past!r} of the same row")
    else:
        input_tokens = file.counts(file.require(QUERY))
    return clean(Rows(time_s, session, input_tokens, output_tokens, history_tokens), file, notes)
