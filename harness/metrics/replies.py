"""Metrics of the replies of a live run: whether they failed, could be heard, began early, were as long as asked, and
came in one write; and the two parts of the wait for them."""

import numpy as np
import pandas as pd

from harness.metrics.definitions import Definition, share_of, statistics
from harness.metrics.failed_turns import infinite_where_failed
from harness.metrics.metric import Measured, Result, share
from harness.metrics.reply_length import audio_at_once, audio_lengths, text_at_once, text_lengths
from harness.request_tables.request_table import COMPLETED, FAILED, UNFINISHED, turn_keys
from harness.request_tables.wait_parts import ANSWER, END_OF_TURN

FAILED_SHARE = "failed_share"


def reply_metrics(events: pd.DataFrame, requests: pd.DataFrame, trace: pd.DataFrame | None) -> dict[str, Result]:
    """Return the metrics of `REPLY_DEFINITIONS` that these turns have. `requests`: of the turns that metrics are over;
    `trace`: rows of the trace, with the lengths that were asked for; None: not known."""
    lengths = {} if trace is None else _lengths(requests, trace)
    counts = lengths | _at_once(requests) | _early(events, requests)
    return {**counts, **_parts(requests)}


def failure_metrics(events: pd.DataFrame, requests: pd.DataFrame) -> dict[str, Measured]:
    """Return how many turns failed, and how many of these were silent. `requests`: of the whole run, as a failure
    outside the steady window counts as well."""
    silent = np.isin(turn_keys(requests), turn_keys(events.loc[events["kind"].to_numpy() == "silent_reply"]))
    spoken = requests["spoken"].to_numpy(bool) & (requests["status"] == COMPLETED).to_numpy(bool)
    silent = silent | (spoken & (requests["packets"].to_numpy(float, na_value=np.nan) == 0))
    failed = np.isin(requests["status"], [FAILED, UNFINISHED])
    return {FAILED_SHARE: share(failed | silent), "silent_replies": (float(silent.sum()), silent.size, 0)}


def _lengths(requests: pd.DataFrame, trace: pd.DataFrame) -> dict[str, Measured]:
    measured: dict[str, Measured] = {}
    for name, lengths in (
        ("reply_tokens", text_lengths(requests, trace)),
        ("reply_audio_s", audio_lengths(requests, trace)),
    ):
        if lengths is not None:
            measured[f"{name}_mean"] = (lengths.mean, lengths.n, 0)
            measured[f"{name}_asked"] = (lengths.asked_mean, lengths.n, 0)
            measured[f"{name}_short"] = (float(lengths.short), lengths.n, 0)
    return measured


def _at_once(requests: pd.DataFrame) -> dict[str, Measured]:
    read, spoken = text_at_once(requests), audio_at_once(requests)
    replies = read.replies + spoken.replies
    return {"replies_at_once": (float(replies), read.of + spoken.of, 0)}


def _early(events: pd.DataFrame, requests: pd.DataFrame) -> dict[str, Measured]:
    reported = events.loc[events["kind"].to_numpy() == "early_reply"]
    early = np.isin(turn_keys(requests), turn_keys(reported))
    return {
        "early_replies": (float(early.sum()), len(requests), 0),
        "talked_over": share(early[requests["spoken"].to_numpy(bool)]),
    }


def _parts(requests: pd.DataFrame) -> dict[str, np.ndarray]:
    if ANSWER not in requests:
        return {}
    status = requests["status"].to_numpy()
    return {
        "end_of_turn": requests[END_OF_TURN].to_numpy(float),
        "answer": infinite_where_failed(status, requests[ANSWER].to_numpy(float)),
    }


REPLY_DEFINITIONS: dict[str, Definition] = {
    FAILED_SHARE: share_of(
        "share of the turns begun that failed: an error, a refusal, a timeout, or a reply that nobody can hear",
        "over all turns, or frames, of the run", "lower"),
    "silent_replies": Definition(
        "1", "spoken replies without sound, or with sound below -60 dBFS from begin to end; they count as failed turns",
        "over all turns of the run", "lower"),
    **{
        f"reply_{name}_{each}": Definition(
            unit, f"{text} {what}", f"over completed turns whose reply is {how}, where {case}", None,
            heading="reply" if each == "mean" else "", shown=unit, spoken=how == "spoken")
        for name, unit, what, how, case in (
            ("tokens", "token", "tokens of a reply", "read", "the server states its tokens"),
            ("audio_s", "s", "seconds of audio of a reply", "spoken", "the trace has a length"),
        )
        for each, text in (("mean", "mean"), ("asked", "mean asked:"))
    },
    "reply_tokens_short": Definition("1", "replies with fewer tokens than asked", "as reply_tokens_mean", None),
    "reply_audio_s_short": Definition(
        "1", "spoken replies that are shorter than the trace has them", "as reply_audio_s_mean", None),
    "replies_at_once": Definition(
        "1", "replies of several tokens, or of sound, whose first output came with the last: in one write",
        "over completed turns with several tokens or with sound", None),
    "early_replies": Definition(
        "1", "replies that began before the caller had finished speaking, as the server took a pause for the end; they "
        "have no time to first audio",
        "over the turns that metrics are over", "lower"),
    "talked_over": share_of(
        "share of spoken replies that began before the caller had finished speaking",
        "over spoken turns", "lower", spoken=True),
    **statistics(("p50", "p90"), {
        "end_of_turn": Definition(
            "s", "of the time until the server reports that it heard the end of the turn; below 0 if early",
            "from the scheduled end of the user's turn, where the server reports ends", "lower", digits=0),
        "answer": Definition(
            "s", "of the time to the first audio; a turn that failed counts as infinitely late",
            "from the server's report that it heard the end of the turn", "lower", digits=0),
    }),
}  # fmt: skip
