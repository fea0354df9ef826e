"""Replay of recorded requests: rows of a log become sessions of typed turns at their recorded times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from workloads.distributions import arrivals, speech
from workloads.errors import UserError, printable
from workloads.files.reading import say
from workloads.files.row_file import MAX_S, TOO_MANY, RowFile
from workloads.seeds import Streams
from workloads.trace import Trace
from workloads.workload_params import ReplyParams


class ReplayParams(ReplyParams):
    """Parameters of a replay: the part of the file and the speed."""

    path: Path = Field(description="the file to replay")
    limit: int | None = Field(None, ge=1, le=1_000_000_000, description="replay only the first N rows of the file")
    skip_bad: bool = Field(False, description="skip bad rows, and note their number by kind")
    unit: Literal["s", "ms", "us", "ns"] | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="unit of the file's times; default: that of its format, unless the times look wrong",
    )
    start_s: Annotated[float, Field(ge=-1e10, le=1e10)] | Literal["busiest"] = Field(
        0.0, description="begin so long after the first request, s; busiest: where `duration_s` holds the most"
    )
    duration_s: float | None = Field(None, gt=0, le=1e10, description="replay so much of the record, s")
    time_scale: float = Field(
        1.0, ge=1e-6, le=1e9, description="arrival times are divided by this; 60: minutes in seconds"
    )
    peak_rate: float | None = Field(
        None, gt=0, le=1e6, description="scale time so that the busiest `peak_window_s` has this rate per second"
    )
    peak_window_s: float = Field(10.0, gt=0, le=1e6, description="window of `peak_rate`, s")
    max_reply_tokens: int | None = Field(
        None, ge=1, le=1_000_000, description="cut longer replies to this many text tokens"
    )

    @model_validator(mode="after")
    def _one_way_to_say_when(self) -> ReplayParams:
        if self.start_s == "busiest" and self.duration_s is None:
            raise ValueError("start_s=busiest needs duration_s, the length of the window; set it")
        if isinstance(self.start_s, float) and self.start_s < 0:
            raise ValueError(f"start_s={self.start_s} lies before the record; set 0 or more")
        if self.peak_rate is not None and self.time_scale != 1:
            raise ValueError("peak_rate and time_scale both set the speed; leave one of them out")
        return self


@dataclass
class Rows:
    """Recorded requests in the order of time, arrays of shape (rows,).

    time_s         any origin
    session        text id; "" is a request that belongs to no session
    input_tokens   new tokens; history_tokens: context before them as recorded, or None where not recorded
    output_tokens  tokens of the reply
    delay_s        pause after the reply before, of a request without a time of its own, else NaN; None: all have one
    """

    time_s: np.ndarray
    session: np.ndarray
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    history_tokens: np.ndarray | None
    delay_s: np.ndarray | None = None

    def keep(self, chosen: np.ndarray) -> Rows:
        """The rows at these positions, or where this mask is true, in that order."""
        history = None if self.history_tokens is None else self.history_tokens[chosen]
        return replace(
            self,
            time_s=self.time_s[chosen],
            session=self.session[chosen],
            input_tokens=self.input_tokens[chosen],
            output_tokens=self.output_tokens[chosen],
            history_tokens=history,
            delay_s=None if self.delay_s is None else self.delay_s[chosen],
        )


UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_SUFFIX = re.compile(
    r"_(?:(s|secs?|seconds)|(ms|msecs?|millis|milliseconds)|(us|usecs?|micros|microseconds)|"
    r"(ns|nsecs?|nanos?|nanoseconds))$"
)
"""Endings of a column's name that state its unit: s, ms, us, ns."""
_FASTEST_RPS, _SLOWEST_S, _FEWEST = 100.0, 1000.0, 4
"""[chosen] More requests per second than the first in a unit below s, or fewer than one in the second number of
seconds, look like another unit; with fewer gaps than the last nothing can be said."""
_WHOLE_S, _BROKEN_S = 1.0, 10.0
"""[chosen] Gaps in a file that states no unit, as long as these and shorter than `_SLOWEST_S`, may be seconds of a slow
server or milliseconds of a fast one: of whole numbers, which milliseconds are as a rule, and of others."""
_EPOCH = 1.2e9, 2.2e9
"""Numbers of seconds since 1970 that are dates of 2008 to 2039."""


def plain(name: str) -> str:
    """Return the name of a column in small letters and underscores, without what it is within: `usage.promptTokens` is
    `prompt_tokens`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.rpartition(".")[2])
    return re.sub(r"[\s(\[-]+", "_", words).strip(" )]_").lower()


def without_unit(name: str) -> tuple[str, str | None]:
    """Return the plain name of a column without its unit, and the unit."""
    name = plain(name)
    match = _SUFFIX.search(name)
    if match is None:
        return name, None
    unit = next(unit for unit, said in zip(reversed(UNITS), match.groups(), strict=True) if said)
    return re.sub("_?(unix|epoch)$", "", name[: match.start()]), unit


def times(
    file: RowFile,
    column: str,
    params: ReplayParams,
    unit: Literal["s", "ms"] | None,
    notes: list[str] | None = None,
    without: np.ndarray | None = None,
) -> np.ndarray:
    """Return a column of times, s: dates, or numbers in the unit that the user sets, the column's name says, times
    since 1970 show, or this format has (`unit`; None: it states none). UserError if the times look like another unit
    and the user sets none. `notes`: for what was found out; `without`: rows that may lack a time, which is 0."""
    without = np.zeros(len(file), bool) if without is None else without
    values = np.where(without, 0.0, file.as_float(column))
    is_date = np.isnan(values) & file.good
    if is_date.any() and (dates := _dates(file, column, is_date, without, params)) is not None:
        return dates
    seen = np.sort(values[file.good & ~without & ~np.isnan(values)])
    named = params.unit or without_unit(column)[1]
    since_1970 = None if named else _since_1970(seen)
    if params.unit is None and (found := named or since_1970) and notes is not None:
        notes.append(f"times in {_NAMES[found]}, as column {column!r} shows")
    if not named:
        _check_unit(file, seen, since_1970, unit)
    return file.times(column, UNITS[named or since_1970 or unit or "s"], without)


def _dates(
    file: RowFile, column: str, is_date: np.ndarray, without: np.ndarray, params: ReplayParams
) -> np.ndarray | None:
    """Return a column of dates, s since 1970; None where it has none."""
    dates = file.dates(column)
    if np.isnan(dates[is_date]).all():
        return None
    if params.unit is not None:
        raise UserError(
            f"unit={params.unit}: the times of column {column!r} are dates, which have none; leave unit out."
        )
    dates = np.where(without, 0.0, dates)
    file.refuse(np.isnan(dates), column, "is not a date and time")
    file.refuse((dates < 0) | (dates > MAX_S), column, "is before 1970 or in a far future")
    return np.nan_to_num(dates)


def _since_1970(seen: np.ndarray) -> str | None:
    """Return the unit in which these times, ascending, are dates of this century; None where they are none."""
    low, high = _EPOCH
    return next(
        (unit for unit, scale in UNITS.items() if len(seen) and low <= seen[0] * scale and seen[-1] * scale <= high),
        None,
    )


def _check_unit(file: RowFile, seen: np.ndarray, since_1970: str | None, unit: str | None) -> None:
    """UserError where times, ascending, look like another unit, or in a format without one may be of two."""
    span, gaps = float(np.ptp(seen)) if len(seen) else 0.0, len(seen) - 1
    if gaps < _FEWEST or span == 0:
        return
    units, whole = list(UNITS), not np.any(np.abs(seen - np.round(seen)) > 1e-3)
    taken = since_1970 or unit or "s"
    at, span_s = units.index(taken), span * UNITS[taken]
    if since_1970 is None and at < 3 and (gaps / span_s > _FASTEST_RPS or not whole):
        raise _other_unit(file, f"{gaps / span_s:,.6g} requests/s", units[at], units[at + 1])
    if at and span_s / gaps > _SLOWEST_S:
        raise _other_unit(file, f"one request in {span_s / gaps:,.0f} s", units[at], units[at - 1])
    if since_1970 is None and unit is None and span_s / gaps >= (_WHOLE_S if whole else _BROKEN_S):
        raise UserError(
            f"{file.path}: the times are one request in {span_s / gaps:,.4g} s if they are seconds, and "
            f"{1000 * gaps / span_s:,.4g} requests/s if they are milliseconds: --set unit=s or --set unit=ms."
        )


def _other_unit(file: RowFile, rate: str, unit: str, other: str) -> UserError:
    return UserError(
        f"{file.path}: {rate}: are the times in {_NAMES[other]}? --set unit={other} (or --set unit={unit}, if not)."
    )


def timed(
    file: RowFile,
    column: str | None,
    delay: str | None,
    session: np.ndarray,
    params: ReplayParams,
    unit: Literal["s", "ms"] | None,
    notes: list[str],
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the time of each request, s, and where a file states some, the pause before it, s, NaN for none.

    A request with a pause and no time comes so long after the reply before it; until then it has the time of the
    session's first. A session without any time begins at 0.
    """
    if delay is None:
        assert column is not None, "checked before"
        return times(file, column, params, unit, notes), None
    of_pause = params.unit or without_unit(delay)[1] or unit
    if of_pause is None:
        raise UserError(
            f"{file.path}: column {delay!r} states no unit: --set unit=s or --set unit=ms; or end its name in "
            "_s or _ms."
        )
    pause_s = file.as_float(delay) * UNITS[of_pause]
    follows = (sessions_of(session)[1] > 0) & (pause_s >= 0)
    at_s = np.zeros(len(file))
    if column is not None:
        follows &= file.text(column) == ""
        at_s = times(file, column, params, unit, notes, follows)
    else:
        notes.append(f"{len(np.unique(session[~follows]))} sessions state no time: they begin at once")
    import pandas as pd  # takes longer than all else that is imported here, and parameters need none

    before_s = pd.Series(np.where(follows, np.nan, at_s)).groupby(session).ffill().to_numpy()
    return np.where(follows, before_s, at_s), np.where(follows, pause_s, np.nan)


def clean(rows: Rows, file: RowFile, notes: list[str], harmless: Sequence[str] = ()) -> Rows:
    """Drop bad rows and failures (no input or no output tokens) and sort by time, stable. `harmless`: columns without
    information that a replay lacks.
    """
    notes += file.notes()
    total = len(file) + file.skipped[TOO_MANY]
    if unused := file.unused(harmless):
        notes.append(f"columns that are not used: {printable(', '.join(unused))}")
    if not file.good.any():
        raise file.nothing_left()
    rows = rows.keep(file.good)
    good = (rows.input_tokens > 0) & (rows.output_tokens > 0)
    if not good.any():
        raise UserError(
            f"{file.path}: every row has zero request or response tokens; give a file with answered requests."
        )
    if not good.all():
        notes.append(f"{np.sum(~good)} of {len(good)} rows dropped: zero request or response tokens")
    rows = rows.keep(good)
    notes.append(f"{len(rows.time_s):,} of {total:,} {file.rows} used")
    late = np.sum(np.diff(rows.time_s) < 0)
    if late:
        notes.append(f"{late} rows earlier than the row before them: sorted by time")
    return rows.keep(np.argsort(rows.time_s, kind="stable"))


def sessions_of(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(session, turn) numbers of rows in order of time; sessions by first appearance, each "" on its own."""
    import pandas as pd  # takes longer than all else that is imported here, and parameters need none

    alone = ids == ""
    unique = np.where(alone, np.arange(len(ids)), ids)
    session = pd.factorize(unique)[0]
    turn = pd.Series(session).groupby(session).cumcount().to_numpy()
    return session, turn


def split_history(rows: Rows, notes: list[str]) -> Rows:
    """Convert rows whose input contains the conversation so far to rows of new tokens and history.

    What the previous turn left behind (request + response) is history and the rest is new. A request no longer than
    that cannot contain it: the history was cut and its prefix changed, so all of the request is new and its history
    is 0. Either way history + new = request tokens.
    """
    session, turn = sessions_of(rows.session)
    order = np.lexsort((turn, session))
    context = (rows.input_tokens + rows.output_tokens)[order]
    before = np.zeros_like(context)
    before[order[1:]] = context[:-1]
    before[turn == 0] = 0
    cut = before >= rows.input_tokens
    history = np.where(cut, 0, before)
    if cut.any():
        notes.append(f"{cut.sum()} requests hold no more than their conversation before: taken as new, history 0")
    return replace(rows, input_tokens=rows.input_tokens - history, history_tokens=history)


def split_sessions(rows: Rows, prompts: Literal["whole", "new"] | None, notes: list[str]) -> Rows:
    """Return the rows with the history of each prompt apart, where prompts are whole ones; None: as most lengths
    say."""
    if prompts is None:
        session, turn = sessions_of(rows.session)
        order = np.lexsort((turn, session))
        before, prompt = (rows.input_tokens + rows.output_tokens)[order][:-1], rows.input_tokens[order][1:]
        later = turn[order][1:] > 0
        n, of = int(np.sum(later & (prompt > before))), int(np.sum(later))
        if not of:
            return rows
        prompts = "whole" if 2 * n > of else "new"
        notes.append(
            f"prompts={prompts}: {n} of {of} later requests of a session are longer than the one before and its reply"
        )
    return split_history(rows, notes) if prompts == "whole" else rows


def _window(rows: Rows, params: ReplayParams, notes: list[str]) -> Rows:
    time_s = rows.time_s - rows.time_s[0]
    length_s = np.inf if params.duration_s is None else params.duration_s
    start_s = params.start_s
    if start_s == "busiest":
        start_s = arrivals.busiest(time_s, length_s)
        notes.append(f"busiest {length_s:g} s of the record: from {start_s:.6f} s")
    chosen = (time_s >= start_s) & (time_s < start_s + length_s)
    if not chosen.any():
        raise UserError(
            f"{params.path}: no request between {start_s:g} s and {start_s + length_s:g} s of "
            f"{time_s[-1]:g} s; choose another start_s or duration_s."
        )
    begun = set(rows.session[~chosen & (time_s < start_s)]) - {""}
    cut = len(begun & set(rows.session[chosen]))
    if cut:
        notes.append(f"{cut} sessions began before the window: their earlier turns are left out")
    return rows.keep(chosen)


def _time_scale(time_s: np.ndarray, params: ReplayParams, notes: list[str]) -> float:
    if params.peak_rate is None:
        return params.time_scale
    try:
        scale = arrivals.scale_to_peak(time_s, params.peak_rate, params.peak_window_s)
    except ValueError as error:
        raise UserError(f"{params.path}: {error}.") from None
    peak = f"the busiest {params.peak_window_s:g} s have {params.peak_rate:g} per second"
    notes.append(f"times divided by {scale:.6g}: {peak}")
    return scale


def replay(generator: str, rows: Rows, params: ReplayParams, seed: int, notes: Sequence[str]) -> Trace:
    """Return the trace of cleaned rows. Every turn keeps its recorded time, counted from the first row.

    A user who is recorded to come back before the end of a reply does so; the client decides what that means.
    """
    streams = Streams(seed)
    notes = list(notes)
    if params.start_s != 0 or params.duration_s is not None:
        rows = _window(rows, params, notes)
    time_s = rows.time_s - rows.time_s[0]
    time_s = time_s / _time_scale(time_s, params, notes)
    session, turn = sessions_of(rows.session)
    n_sessions = int(session.max()) + 1
    pause_s = np.full(len(turn), np.nan) if rows.delay_s is None else np.where(turn > 0, rows.delay_s, np.nan)
    output_tokens = rows.output_tokens
    if params.max_reply_tokens is not None:
        cut = np.sum(output_tokens > params.max_reply_tokens)
        output_tokens = np.minimum(output_tokens, params.max_reply_tokens)
        notes.append(f"{cut} replies cut to {params.max_reply_tokens} tokens")
    columns = {
        "session": session,
        "turn": turn,
        "arrival_s": np.where(np.isnan(pause_s), time_s, np.nan),
        "think_s": pause_s,
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
    say(params.path, notes)
    return Trace.made(generator, params, streams, columns, notes)
