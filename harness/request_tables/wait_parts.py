"""The wait for an answer in two parts: until the server hears the end of the turn, and from there to the first audio.

Servers that detect the ends of turns report them: `input_audio_buffer.speech_stopped` and `committed` in OpenAI's
protocol, `user-stopped-speaking` in RTVI. The parts of a turn add up to its time to first audio.
"""

import numpy as np
import pandas as pd

from harness.request_tables.request_table import turn_keys

HEARD = "end_heard"
"""Kind of the event that logs such a report."""
END_OF_TURN, ANSWER = "end_of_turn_s", "answer_s"
"""Columns of a live run's request table whose server reports ends: from the scheduled end of the user's turn to the
server's last report before its first audio, s, below 0 if it was early; and from there to that audio, s."""


def with_parts(requests: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """Return a request table with both columns; the same where the server reports no end."""
    kinds = events["kind"].astype(str).to_numpy()
    heard = events.loc[kinds == HEARD]
    if heard.empty:
        return requests
    first_s = requests["turn_end_s"] + requests["audio_ttfp_s"]
    rows = pd.DataFrame({"key": turn_keys(requests), "first_s": first_s.to_numpy(float)})
    ends = pd.DataFrame({"key": turn_keys(heard), "heard_s": heard["t"].to_numpy(float)}).merge(rows, on="key")
    ends = ends.loc[~(ends["heard_s"] > ends["first_s"])]  # of a turn without audio the last one
    last_s = ends.groupby("key")["heard_s"].max().reindex(rows["key"]).to_numpy(float)
    end_s = requests["turn_end_s"].to_numpy(float)
    return requests.assign(**{END_OF_TURN: last_s - end_s, ANSWER: np.asarray(first_s, float) - last_s})
