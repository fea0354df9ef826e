"""The nominal timeline: the times of a trace's turns if the server answered at once and in full.

A trace fixes when its sessions arrive; when a later turn starts depends on how long the replies take. Formats and
pictures that need a time for every turn use this one, which no engine can beat. It follows the rules of
`harness.client`: a user who interrupts goes on at once, one who takes the turn up again before the reply begins, else
at the recorded time but never before the reply is over, else after thinking. Agents wait for the agents that they
called.
"""

from dataclasses import dataclass

import numpy as np

from workloads.columns.jobs import Waits, job_of
from workloads.trace import Trace


@dataclass(frozen=True)
class Timeline:
    """One value per turn, in the order of `Trace.columns()`; times in s from the start of the trace.

    start_s          the user begins to speak or sends the text
    said_s           the user's turn is complete, and the reply begins
    end_s            the reply is over: at once for text, else played or interrupted
    interrupted      a barge-in, or another word of the user's that takes the floor, comes before the end of the reply
    context_tokens   tokens before this turn: as stated, or the earlier turns with what was heard of replies
    continues        the context is all that the session said so far, so it begins with the last turn's prompt
    """

    start_s: np.ndarray
    said_s: np.ndarray
    end_s: np.ndarray
    interrupted: np.ndarray
    context_tokens: np.ndarray
    continues: np.ndarray


def nominal(trace: Trace) -> Timeline:
    columns = trace.columns()
    turn, arrival = columns["turn"], columns["arrival_s"]
    speech, reply = (np.nan_to_num(columns[name]) for name in ("audio_s", "reply_audio_s"))
    event, event_after = columns["event"], columns["event_after_s"]
    cut = np.where(event == "interruption", event_after, columns["barge_in_after_s"])
    cut, again = np.where(event == "correction", 0.0, cut), np.where(event == "correction", event_after, 0.0)
    think = np.nan_to_num(columns["think_s"])
    interrupted = cut < reply  # false where either is None
    listened = np.where(interrupted, cut, reply)
    heard = np.divide(listened, reply, out=np.ones_like(reply), where=interrupted)
    kept = np.floor(columns["output_tokens"] * heard)
    stated = columns["history_tokens"]
    start, context = arrival.copy(), np.zeros_like(arrival)
    continues = np.ones(len(turn), bool)
    for index in range(int(turn.max()) + 1):
        rows = np.flatnonzero(turn == index)
        if index:
            before = rows - 1
            over = start[before] + speech[before] + listened[before] + again[before]
            waited = np.where(np.isnan(arrival[rows]), over + think[rows], np.fmax(over, arrival[rows]))
            start[rows] = np.where(interrupted[before], over, waited)
            context[rows] = context[before] + columns["input_tokens"][before] + kept[before]
        given = stated[rows]
        continues[rows] = np.isnan(given) | (given == context[rows])
        context[rows] = np.where(np.isnan(given), context[rows], given)
    called = (columns["turn"] == 0) & (columns["waits"] != "")
    in_job = np.isin(job_of(columns), job_of(columns)[called])
    if in_job.any():
        start = np.where(in_job, Waits.of(columns).ends(arrival, np.zeros_like(think)), start)
    speech_end = start + speech
    return Timeline(start, speech_end, speech_end + listened, interrupted, context.astype(np.int64), continues)
