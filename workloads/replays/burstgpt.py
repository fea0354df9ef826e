"""Replay of BurstGPT, the log of a university's ChatGPT and GPT-4 service: workload `burstgpt`.

Both published layouts are read by column name: 6 columns, and 8 columns with `Session ID` and `Elapsed time`.
The recorded request tokens include the conversation so far, see `workloads.replays.replay.split_history`.
"""

import numpy as np

from workloads.files.csv_file import CsvFile
from workloads.replays.replay import ReplayParams, Rows, clean, replay, split_history
from workloads.trace import Trace


def burstgpt(params: ReplayParams, seed: int) -> Trace:
    """Typed requests at their recorded times; UserError names file, row and column of bad input."""
    notes: list[str] = []
    rows = split_history(read_burstgpt(params, notes), notes)
    return replay("burstgpt", rows, params, seed, notes)


def read_burstgpt(params: ReplayParams, notes: list[str]) -> Rows:
    """The answered requests of a file; their input holds the conversation so far."""
    file = CsvFile(params.path, params.limit, params.skip_bad)
    session = file.find(["Session ID", "SessionID"])  # as the files and as their description call it
    rows = Rows(
        time_s=file.times(file.require(["Timestamp"])),
        session=file.text(session) if session else np.full(len(file), "", object),
        input_tokens=file.counts(file.require(["Request tokens"])),
        output_tokens=file.counts(file.require(["Response tokens"])),
        history_tokens=None,
    )
    return clean(rows, file, notes)
