"""The lengths of complete replies next to the lengths that were asked for, and replies that came in one write.

A short reply is no failure: a model may stop. But replies that are shorter than planned are another load, and a time to
the first token that is the time to the last says nothing of the server.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from harness.request_tables.request_table import COMPLETED, turn_keys
from harness.request_tables.stages import ENTRY

SAME_S, SAME_SHARE = 1e-3, 0.01
"""The first and the last output came together if there is no more between them: s, or this share of the longer time.
[chosen] Below any pace of tokens, and above the reading of one write."""
NEARLY_ALL = 0.9
"""Share of the replies that is nearly all of them. [chosen]"""


class Lengths(NamedTuple):
    """The lengths of `n` complete replies, in tokens or s, and the lengths that were asked for. `short`: the number of
    replies that were shorter than asked."""

    n: int
    mean: float
    p50: float
    asked_mean: float
    asked_p50: float
    short: int


def text_lengths(requests: pd.DataFrame, trace: pd.DataFrame) -> Lengths | None:
    """Return the tokens of replies that are read, by the server's own count; None where it states none. `requests`: a
    request table, `trace`: the rows of its trace."""
    read = requests.loc[(requests["status"] == COMPLETED) & ~requests["spoken"].astype(bool)]
    return _lengths(read, f"generated_{ENTRY}", trace, "output_tokens", 0.5)


def audio_lengths(requests: pd.DataFrame, trace: pd.DataFrame) -> Lengths | None:
    """Return the seconds of audio of spoken replies, and the seconds that the trace has for them: a server of ours is
    asked for these, others are not. None without spoken replies."""
    spoken = requests.loc[(requests["status"] == COMPLETED) & requests["spoken"].astype(bool)]
    return _lengths(spoken, "audio_s", trace, "reply_audio_s", 0.1)


class AtOnce(NamedTuple):
    """`replies` of `of` complete replies of several tokens, or of sound, came in one write."""

    replies: int
    of: int

    @property
    def nearly_all(self) -> bool:
        return self.of > 0 and self.replies >= NEARLY_ALL * self.of


def text_at_once(requests: pd.DataFrame) -> AtOnce:
    """Count replies of several tokens whose time to the first token is the time to their end."""
    tokens = _floats(requests, f"generated_{ENTRY}")
    several = (tokens > 1) | (np.isnan(tokens) & requests["tbt_max_s"].notna().to_numpy())
    return _at_once(requests.loc[several & ~requests["spoken"].to_numpy(bool)], "ttft_s")


def audio_at_once(requests: pd.DataFrame) -> AtOnce:
    """Count spoken replies whose time to the first audio is the time to their end."""
    return _at_once(requests.loc[requests["spoken"].to_numpy(bool)], "audio_ttfp_s")


def _lengths(rows: pd.DataFrame, column: str, trace: pd.DataFrame, asked: str, tolerance: float) -> Lengths | None:
    wanted = _floats(trace, asked)
    order = np.argsort(turn_keys(trace))
    place = np.searchsorted(turn_keys(trace)[order], turn_keys(rows))
    got, wanted = _floats(rows, column), wanted[order][place]
    in_both = ~np.isnan(got) & ~np.isnan(wanted)
    got, wanted = got[in_both], wanted[in_both]
    if not got.size:
        return None
    return Lengths(
        int(got.size),
        float(got.mean()),
        float(np.median(got)),
        float(wanted.mean()),
        float(np.median(wanted)),
        int((got < wanted - tolerance).sum()),
    )


def _at_once(rows: pd.DataFrame, first: str) -> AtOnce:
    done = rows.loc[(rows["status"] == COMPLETED).to_numpy()]
    first_s, end_s = _floats(done, first), _floats(done, "e2e_s")
    timed = ~np.isnan(first_s) & ~np.isnan(end_s)
    same = end_s - first_s <= np.maximum(SAME_S, SAME_SHARE * end_s)
    return AtOnce(int((same & timed).sum()), int(timed.sum()))


def _floats(rows: pd.DataFrame, name: str) -> np.ndarray:
    return rows[name].to_numpy(float, na_value=np.nan)
