"""Replays of logs of requests as CSV: workloads `burstgpt` (a university's ChatGPT and GPT-4 service) and `azure` (the
Azure LLM inference traces of 2023 and 2024; single requests)."""

import numpy as np

from workloads.files.csv_file import CsvFile
from workloads.replays.replay import ReplayParams, Rows, clean, replay, split_history, times
from workloads.trace import Trace


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
    file = CsvFile(params.path, params.limit, params.skip_bad)
    rows = Rows(
        # Seven decimals, and in the traces of 2024 a time zone in some rows.
        time_s=times(file, file.require(["TIMESTAMP"]), params, "s"),
        session=np.full(len(file), "", object),
        input_tokens=file.counts(file.require(["ContextTokens"])),
        output_tokens=file.counts(file.require(["GeneratedTokens"])),
        history_tokens=None,
    )
    return clean(rows, file, notes)
