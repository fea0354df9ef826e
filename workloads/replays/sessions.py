"""Replay of a log of sessions with times and token counts, such as RAGPulse's: workload `sessions`.

Where the log states the whole input and the history in it, the history is taken from it and the rest (query,
retrieved passages, system prompt) is new. Else the query is new and the session's own turns are its history.
"""

from workloads.files.csv_file import CsvFile
from workloads.replays.replay import ReplayParams, Rows, clean, replay
from workloads.trace import Trace

# Our names first, then those of RAGPulse's sessions_derived.csv.
TIME = ["t", "timestamp"]
SESSION = ["session_id"]
QUERY = ["query", "q_tok"]
OUTPUT = ["output", "output_length"]
INPUT = ["input_length"]
HISTORY = ["h_tok"]


def sessions(params: ReplayParams, seed: int) -> Trace:
    """Typed turns at their recorded times; UserError names file, row and column of bad input."""
    notes: list[str] = []
    return replay("sessions", read_sessions(params, notes), params, seed, notes)


def read_sessions(params: ReplayParams, notes: list[str]) -> Rows:
    """The answered requests of a file in the order of time."""
    file = CsvFile(params.path, params.limit, params.skip_bad)
    time_s = file.times(file.require(TIME))
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
