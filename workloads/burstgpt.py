"""Replay of BurstGPT, the log of a university's ChatGPT and GPT-4 service: workload `burstgpt`.

Both published layouts are read by column name: 6 columns, and 8 columns with `Session ID` and `Elapsed time`.
The recorded request tokens include the conversation so far. With session ids, what the previous turn left
behind (request + response) is history and the rest is new. A request no longer than that cannot contain it:
the history was cut and its prefix changed, so all of the request is new and its history is 0. Either way
history + new = request tokens.
"""

from __future__ import annotations

import numpy as np

from workloads.csv_file import CsvFile
from workloads.replay import ReplayParams, Rows, clean, replay, sessions_of
from workloads.trace import Trace


def burstgpt(params: ReplayParams, seed: int) -> Trace:
    """Typed requests at their recorded times; UserError names file, row and column of bad input."""
    file = CsvFile(params.path, params.limit)
    session = file.find(["Session ID"])
    rows = Rows(
        time_s=file.numbers(file.require(["Timestamp"])),
        session=file.text(session) if session else np.full(len(file), "", object),
        input_tokens=file.counts(file.require(["Request tokens"])),
        output_tokens=file.counts(file.require(["Response tokens"])),
        history_tokens=None,
    )
    notes: list[str] = []
    rows = clean(rows, file.path, notes)
    history, cut = _history(rows)
    if cut:
        notes.append(f"{cut} requests hold no more than their conversation before: taken as new, history 0")
    rows.input_tokens, rows.history_tokens = rows.input_tokens - history, history
    return replay("burstgpt", rows, params, seed, notes)


def _history(rows: Rows) -> tuple[np.ndarray, int]:
    """Tokens of each request that the previous turn of its session left behind, and how many were cut."""
    session, turn = sessions_of(rows.session)
    order = np.lexsort((turn, session))
    context = (rows.input_tokens + rows.output_tokens)[order]
    before = np.zeros_like(context)
    before[order[1:]] = context[:-1]
    before[turn == 0] = 0
    cut = before >= rows.input_tokens
    return np.where(cut, 0, before), int(cut.sum())
