"""Replay of recorded requests: rows of a log become sessions of typed turns at their recorded times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from pydantic import Field

from workloads import speech
from workloads.errors import UserError
from workloads.params import ReplyParams
from workloads.seeds import Streams
from workloads.trace import Trace


class ReplayParams(ReplyParams):
    """Which part of a recorded file to replay, and how fast."""

    path: Path = Field(description="the CSV file to replay")
    limit: int | None = Field(None, ge=1, description="replay only the first so many rows of the file")
    time_scale: float = Field(
        1.0, ge=1e-6, le=1e9, description="arrival times are divided by this; 60: minutes in seconds"
    )
    max_reply_tokens: int | None = Field(
        None, ge=1, le=1_000_000, description="cut longer replies to this many text tokens"
    )


@dataclass
class Rows:
    """Recorded requests in the order of time, arrays of shape (rows,).

    time_s         any origin
    session        text id; "" is a request that belongs to no session
    input_tokens   new tokens; history_tokens: context before them as recorded, or None where not recorded
    output_tokens  tokens of the reply
    """

    time_s: np.ndarray
    session: np.ndarray
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    history_tokens: np.ndarray | None

    def keep(self, chosen: np.ndarray) -> Rows:
        """The rows at these positions, or where this mask is true, in that order."""
        history = None if self.history_tokens is None else self.history_tokens[chosen]
        return Rows(
            self.time_s[chosen],
            self.session[chosen],
            self.input_tokens[chosen],
            self.output_tokens[chosen],
            history,
        )


def clean(rows: Rows, path: Path, notes: list[str]) -> Rows:
    """Drop failures (no input or no output tokens) and order by time, rows of equal time as in the file."""
    good = (rows.input_tokens > 0) & (rows.output_tokens > 0)
    if not good.any():
        raise UserError(
            f"{path}: every row has zero request or response tokens; give a file with answered requests."
        )
    if not good.all():
        notes.append(f"{np.sum(~good)} of {len(good)} rows dropped: zero request or response tokens")
    rows = rows.keep(good)
    late = np.sum(np.diff(rows.time_s) < 0)
    if late:
        notes.append(f"{late} rows earlier than the row before them: sorted by time")
    return rows.keep(np.argsort(rows.time_s, kind="stable"))


def sessions_of(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(session, turn) numbers of rows in order of time; sessions by first appearance, each "" on its own."""
    alone = ids == ""
    unique = np.where(alone, np.arange(len(ids)), ids)
    session = pd.factorize(unique)[0]
    turn = pd.Series(session).groupby(session).cumcount().to_numpy()
    return session, turn


def replay(generator: str, rows: Rows, params: ReplayParams, seed: int, notes: Sequence[str]) -> Trace:
    """The trace of cleaned rows. Every turn keeps its recorded time, counted from the first row.

    A user who is recorded to come back before the end of a reply does so; the client decides what that means.
    """
    streams = Streams(seed)
    notes = list(notes)
    session, turn = sessions_of(rows.session)
    n_sessions = int(session.max()) + 1
    output_tokens = rows.output_tokens
    if params.max_reply_tokens is not None:
        cut = np.sum(output_tokens > params.max_reply_tokens)
        output_tokens = np.minimum(output_tokens, params.max_reply_tokens)
        notes.append(f"{cut} replies cut to {params.max_reply_tokens} tokens")
    columns = {
        "session": session,
        "turn": turn,
        "arrival_s": (rows.time_s - rows.time_s[0]) / params.time_scale,
        "modality": "text",
        "input_tokens": rows.input_tokens,
        "output_tokens": output_tokens,
        "history_tokens": rows.history_tokens,
        "network_s": speech.network_delays(streams("jitter"), params.network_ms, n_sessions)[session],
    }
    if params.reply == "speech":
        reply_audio_s = output_tokens * speech.speech_rate(streams("reply_speech_rate"), n_sessions)[session]
        columns["reply_audio_s"] = reply_audio_s
        columns["barge_in_after_s"] = speech.barge_ins(
            streams("barge_in"), params.p, len(rows.time_s), lambda rng, k: rng.choice(reply_audio_s, k)
        )
    return Trace.from_columns(
        columns,
        generator=generator,
        params=params.model_dump(mode="json"),
        seed=seed,
        streams=streams.names,
        notes=notes,
    )
