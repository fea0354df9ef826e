"""Replay of the Azure LLM inference traces of 2023 and 2024: workload `azure`; single requests."""

import numpy as np
import pandas as pd

from workloads.files.csv_file import CsvFile
from workloads.files.row_file import MAX_S
from workloads.replays.replay import ReplayParams, Rows, clean, replay
from workloads.trace import Trace

TIME, INPUT, OUTPUT = ["TIMESTAMP"], ["ContextTokens"], ["GeneratedTokens"]


def azure(params: ReplayParams, seed: int) -> Trace:
    """Typed requests at their recorded times; UserError names file, row and column of bad input."""
    notes: list[str] = []
    return replay("azure", read_azure(params, notes), params, seed, notes)


def read_azure(params: ReplayParams, notes: list[str]) -> Rows:
    """The answered requests of a file, times in s since 1970."""
    file = CsvFile(params.path, params.limit, params.skip_bad)
    time = file.require(TIME)
    # Seven decimals, and in the traces of 2024 a time zone in some rows.
    stamps = pd.to_datetime(pd.Series(file.text(time)), format="ISO8601", errors="coerce", utc=True)
    file.refuse(stamps.isna().to_numpy(), time, "is not a date and time")
    since_1970 = stamps.dt.tz_localize(None).to_numpy("datetime64[us]").astype(np.int64) / 1e6
    file.refuse((since_1970 < 0) | (since_1970 > MAX_S), time, "is before 1970 or in a far future")
    rows = Rows(
        time_s=since_1970,
        session=np.full(len(file), "", object),
        input_tokens=file.counts(file.require(INPUT)),
        output_tokens=file.counts(file.require(OUTPUT)),
        history_tokens=None,
    )
    return clean(rows, file, notes)
