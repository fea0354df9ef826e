"""From the event log to one row per turn: what one user felt in one exchange.

Every latency runs from the *scheduled* end of the user's turn, not from the send, so that a late client
cannot hide a slow server (coordinated omission). What was not measured is missing (NaN, NA), never 0 or True.
"""

import itertools
from collections.abc import Iterable

import numpy as np
import pandas as pd

from harness.request_tables.playback import Playback, is_continuous
from harness.request_tables.stages import AR_STAGES, ENTRY, STAGES, TALKER, VOCODER
from workloads.columns.classes import DEADLINES, class_of
from workloads.columns.hints import HINT_COLUMNS
from workloads.trace import OWN

COMPLETED, BARGED_IN, FAILED, UNFINISHED = "completed", "barged_in", "failed", "unfinished"
ABORTED, REJECTED = "aborted", "rejected"

COLUMNS: dict[str, tuple[str, str]] = {
    "session": ("int64", "session of the trace"),
    "turn": ("int64", "turn within the session"),
    "status": (
        "str",
        "completed, barged_in, failed (error or timeout), rejected (by admission), unfinished (at the end of the run) "
        "or aborted (its backlog ended)",
    ),
    "spoken": ("bool", "the trace asks for a spoken reply; a text-only reply has no audio metrics"),
    "turn_start_s": ("float64", "time at which the user begins"),
    "turn_end_s": ("float64", "time of the scheduled end of the user's turn"),
    "completion_s": ("float64", "time at which the reply was received in full, or of the barge-in"),
    "ended_s": ("float64", "completion_s; of a failed, rejected or aborted turn the time at which it was that"),
    "send_delay_s": ("float64", "actual send of the end of the turn behind its schedule"),
    "audio_ttfp_s": (
        "float64",
        "turn_end_s to the first non-empty audio packet; missing where the reply began before turn_end_s",
    ),
    "ttft_s": ("float64", "turn_end_s to the first text token"),
    "tbt_mean_s": ("float64", "mean time between text tokens; those of one message arrive together"),
    "tbt_max_s": ("float64", "longest time between two text messages"),
    "e2e_s": ("float64", "turn_end_s to the last message of the reply; completed turns only"),
    "rtf": ("float64", "(last audio packet - turn_end_s) / audio_s; completed turns only"),
    "rtf_gen": ("float64", "(last - first audio packet) / audio_s; completed turns of two packets or more"),
    "audio_s": ("float64", "audio received by the end or the barge-in; missing when not spoken"),
    "packets": ("Int64", "non-empty audio packets received by then; missing when not spoken"),
    "max_gap_s": ("float64", "longest pause of a player that waits; completed and barged-in turns only"),
    "underrun_fixed_s": ("float64", "worst lateness of a player that never waits (vLLM-Omni); same turns"),
    "continuous": ("boolean", "max_gap_s <= 100 ms; False without it; missing when barged in or not spoken"),
    "continuous_fixed": ("boolean", "underrun_fixed_s <= 100 ms, with the same exceptions"),
    "heard_s": ("float64", "audio that the user heard; completed and barged-in turns only"),
    "barge_in_missed": ("bool", "the reply ended before the user would have cut in"),
    "generated_entry": ("Int64", "text tokens produced, with those in flight at an abort"),
    "heard_entry": ("Int64", "of these, heard; missing when unknown (failed or unfinished speech)"),
    "generated_talker": ("Int64", "codec frames produced, with those in flight at an abort"),
    "heard_talker": ("Int64", "of these, heard; missing when unknown (failed or unfinished speech)"),
    "queueing_entry_s": ("float64", "arrival in the first stage's queue to the first step that schedules it"),
    "queueing_talker_s": ("float64", "the same at the talker"),
    "queueing_vocoder_s": ("float64", "the same at the vocoder"),
    "reload_s": (
        "float64",
        "wait at the first stage for KV from host memory before the first step, or from the replica that computed it",
    ),
    "reload_blocks": ("Int64", "KV blocks loaded meanwhile for the turn"),
    "preloaded_blocks": ("Int64", "KV blocks that the turn found because they were loaded before it came"),
    "preemptions": ("Int64", "times a stage preempted the turn; missing when no stage reported the turn"),
}
"""Columns of a request table: dtype and meaning. Times are s since the start of the run, at the client."""

CLASS_COLUMNS: dict[str, tuple[str, str]] = {
    "request_class": ("str", "class of the request"),
    "priority": ("int64", "as the trace says; the lower is served first"),
    "ttft_deadline_s": ("float64", "ttft_s should not be longer; missing: no deadline"),
    "tbt_deadline_s": ("float64", "tbt_max_s should not be longer; missing: no deadline"),
    "tbt_p99_s": ("float64", "P99 of the times between text tokens; those of one message arrive together"),
}
"""Columns that follow `COLUMNS` where the trace has classes."""


# Of the events of a kind, at whatever stage: which of their columns are reduced to one number per turn, and how.
_REDUCED: dict[str, tuple[tuple[str, str], ...]] = {
    "turn_start": (("t", "min"),),
    "turn_end": (("t", "min"), ("value", "first")),
    "first_text": (("t", "min"), ("value", "sum")),
    "text": (("value", "sum"),),
    "usage": (("value", "sum"),),
    "reply_done": (("t", "max"),),
    "playback_done": (("value", "max"),),
    "barge_in": (("t", "min"), ("value", "max")),
    "barge_in_missed": (),
    "turn_done": (),
    "turn_failed": (("t", "min"),),
    "turn_aborted": (("t", "min"),),
    "turn_rejected": (("t", "min"),),
    "arrive": (("t", "min"),),
    "start": (("t", "min"),),
    "token": (("value", "sum"),),
    "finish": (("value", "sum"),),
    "abort": (("value", "sum"),),
    "heard": (("value", "max"),),
    "early_reply": (("t", "count"),),
    "preempt": (("t", "count"),),
    "load_start": (("t", "min"),),
    "load_end": (("t", "max"), ("value", "sum")),
    "preloaded": (("value", "sum"),),
}


def request_table(events: pd.DataFrame | Iterable[pd.DataFrame], trace: pd.DataFrame) -> pd.DataFrame:
    """Return one row per started turn, ordered by session and turn, with the columns of `COLUMNS` and `CLASS_COLUMNS`,
    hints, and the workload's own.

    `events` is the event log (columns t, kind, session, turn, stage, value), whole or in pieces one after the other;
    then at most one piece is in memory. `trace`: the rows of the trace: session, turn, reply_audio_s and, if there are
    any, classes and deadlines are read. The stage of the first arrival is the one that requests come to first; logs of
    other servers' clients have no arrivals, and call it `ENTRY`. ValueError when the log has a turn that the trace
    lacks, or says that more was heard than generated: no number from such a log would be right.
    """
    names = class_of({str(name): trace[name] for name in trace})
    pieces = [events] if isinstance(events, pd.DataFrame) else events
    turns = _Turns(pieces, trace, by_class=names is not None)
    columns = _course(turns) | _text(turns) | _audio(turns) | _tokens(turns) | _service(turns)
    wanted = COLUMNS
    if names is not None:
        columns |= _classes(turns, trace, names)
        wanted = COLUMNS | CLASS_COLUMNS
    # A column at a time: a million turns leave no room for all of them twice.
    table = {name: pd.array(columns.pop(name), dtype=dtype) for name, (dtype, _) in wanted.items()}
    hints = [name for name in trace if name in HINT_COLUMNS and {*trace[name].dropna()} - {""}]
    if own := [*hints, *(name for name in trace if str(name).startswith(OWN))]:
        rows = turns.of_started(np.argsort(turn_keys(trace)))
        table |= {str(name): trace[name].to_numpy()[rows] for name in own}
    return pd.DataFrame(table, copy=False)


def typed(table: pd.DataFrame) -> pd.DataFrame:
    """Return a request table with the dtypes of `COLUMNS` and `CLASS_COLUMNS`, as files do not keep all of them."""
    dtypes = {name: dtype for name, (dtype, _) in (COLUMNS | CLASS_COLUMNS).items() if name in table}
    return table.astype(dtypes)


class _Turns:
    """The started turns, ordered by session and turn, with values from their events. Arrays have one element per turn.
    Events are read once, in the order of the log; until then, arrays have one element per turn of the trace."""

    def __init__(self, pieces: Iterable[pd.DataFrame], trace: pd.DataFrame, by_class: bool) -> None:
        self._entry: str | None = None
        keys = turn_keys(trace)
        by_key = np.argsort(keys)
        self.keys = keys[by_key]
        self.spoken = trace["reply_audio_s"].notna().to_numpy()[by_key]
        self._seen: dict[tuple[str, str], np.ndarray] = {}
        self._reduced: dict[tuple[str, str, str, str], np.ndarray] = {}
        self.text = _Text(len(keys), by_class)
        self._players: dict[int, Playback] = {}
        for piece in pieces:
            self._read(piece)

        self._started = self._seen.get(("turn_start", ""), np.zeros(len(keys), bool))
        self.place = np.where(self._started, np.cumsum(self._started) - 1, -1)
        """Place of each turn of the trace in these arrays; -1: it never started."""
        self.keys, self.spoken = self.of_started(self.keys), self.of_started(self.spoken)
        self.end_s = self.reduce("t", "min", "turn_end")
        self.cut_s = self.reduce("t", "min", "barge_in")
        self.status = np.select(
            [
                self.has("turn_failed"),
                self.has("turn_aborted"),
                self.has("turn_rejected"),
                ~self.has("turn_done"),
                ~np.isnan(self.cut_s),
            ],
            [FAILED, ABORTED, REJECTED, UNFINISHED, BARGED_IN],
            COMPLETED,
        )
        self.completed = self.status == COMPLETED
        self.barged_in = self.status == BARGED_IN

    def __len__(self) -> int:
        return len(self.keys)

    def name(self, row: int) -> str:
        return _name(self.keys[row])

    def reduce(self, column: str, how: str, kind: str, stage: str = "") -> np.ndarray:
        """Return such events reduced, as `_REDUCED` has it, to a float per turn; NaN for a turn without one."""
        assert (column, how) in _REDUCED[kind]
        if (kind, stage) not in self._seen:
            return np.full(len(self), np.nan)
        return np.where(self.has(kind, stage), self.of_started(self._reduced[kind, stage, column, how]), np.nan)

    def has(self, kind: str, stage: str = "") -> np.ndarray:
        """Return whether each turn has such an event."""
        assert kind in _REDUCED
        seen = self._seen.get((kind, stage))
        return np.zeros(len(self), bool) if seen is None else self.of_started(seen)

    def of_started(self, values: np.ndarray) -> np.ndarray:
        """Select the values of started turns from values per turn of the trace."""
        return values[self._started]

    def players(self) -> dict[int, Playback]:
        """Return every spoken reply played up to its barge-in. A turn without a non-empty packet has no player."""
        places = ((int(self.place[row]), player) for row, player in self._players.items())
        return {row: player for row, player in places if row >= 0}

    def _read(self, piece: pd.DataFrame) -> None:
        keys = turn_keys(piece)
        rows = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        in_trace = self.keys[rows] == keys if len(self.keys) else np.zeros(len(keys), bool)
        unknown = keys[~in_trace & (piece["kind"] == "turn_start").to_numpy()]
        if unknown.size:
            raise ValueError(f"the trace lacks {_name(unknown.min())} of the log")
        rows, t, value = rows[in_trace], *(piece[name].to_numpy(float)[in_trace] for name in ("t", "value"))
        if self._entry is None:
            first = piece["stage"].to_numpy()[
                ((piece["kind"] == "arrive") & ~piece["stage"].isin([TALKER, VOCODER])).to_numpy()
            ]
            self._entry = str(first[0]) if len(first) else None
        kinds, stages = (pd.Categorical(piece[name][in_trace]) for name in ("kind", "stage"))
        few = len(kinds.categories) * len(stages.categories) < 2**15  # reasons of rejections are stages, too
        groups = kinds.codes.astype(np.int16 if few else np.int32) * len(stages.categories) + stages.codes
        order = np.argsort(groups, kind="stable")
        ends = np.cumsum(np.bincount(groups, minlength=len(kinds.categories) * len(stages.categories)))
        by_kind: dict[tuple[str, str], _Events] = {}
        for group, (start, end) in enumerate(itertools.pairwise([0, *ends.tolist()])):
            if start < end:
                kind, stage = divmod(group, len(stages.categories))
                members = order[start:end]
                where = str(stages.categories[stage])
                name = str(kinds.categories[kind]), ENTRY if where == self._entry else where
                by_kind[name] = rows[members], t[members], value[members]
        for (kind, stage), events in by_kind.items():
            self._reduce(kind, stage, *events)
        self.text.read([by_kind[kind, ""] for kind in ("first_text", "text") if (kind, "") in by_kind])
        if ("audio", "") in by_kind:
            self._play(*by_kind["audio", ""])

    def _reduce(self, kind: str, stage: str, rows: np.ndarray, t: np.ndarray, value: np.ndarray) -> None:
        if kind not in _REDUCED:
            return
        n = len(self.keys)
        self._seen.setdefault((kind, stage), np.zeros(n, bool))[rows] = True
        for column, how in _REDUCED[kind]:
            values, empty = (t if column == "t" else value), 0.0 if how in ("sum", "count") else np.nan
            result = self._reduced.setdefault((kind, stage, column, how), np.full(n, empty))
            match how:
                case "min":
                    np.fmin.at(result, rows, values)
                case "max":
                    np.fmax.at(result, rows, values)
                case "sum":
                    np.add.at(result, rows, np.nan_to_num(values))
                case "count":
                    np.add.at(result, rows, 1.0)
                case "first":
                    new = np.isnan(result[rows])
                    result[rows[new][::-1]] = values[new][::-1]  # the last that is written stays

    def _play(self, rows: np.ndarray, t: np.ndarray, audio_s: np.ndarray) -> None:
        cut_s = self._reduced.get(("barge_in", "", "t", "min"))
        kept = self.spoken[rows] & (audio_s > 0)
        if cut_s is not None:
            kept &= ~(t > cut_s[rows])
        for row, *packet in zip(*(each.tolist() for each in _by_turn(rows[kept], t[kept], audio_s[kept])), strict=True):
            if row not in self._players:
                self._players[row] = Playback()
            self._players[row].arrive(*packet)


# Of some events: their turns, by place in the trace's order of keys, times and values.
_Events = tuple[np.ndarray, np.ndarray, np.ndarray]


class _Text:
    """The times between a turn's text messages, for each turn of the trace. `gaps`: those of each piece, with their
    turns, where they are kept."""

    def __init__(self, turns: int, keep: bool) -> None:
        self.longest_s, self._last_s = (np.full(turns, np.nan) for _ in range(2))
        self.total_s = np.zeros(turns)
        self.gaps: list[tuple[np.ndarray, np.ndarray]] = []
        self._keep = keep

    def read(self, events: list[_Events]) -> None:
        if not events:
            return
        row, t, _ = _by_turn(*(np.concatenate(each) for each in zip(*events, strict=True)))
        first = np.diff(row, prepend=-1) > 0
        gap_s = np.diff(t, prepend=np.nan)
        gap_s[first] = t[first] - self._last_s[row[first]]
        last = np.roll(first, -1)
        self._last_s[row[last]] = t[last]
        has_gap = ~np.isnan(gap_s)
        row, gap_s = row[has_gap], gap_s[has_gap]
        np.fmax.at(self.longest_s, row, gap_s)
        np.add.at(self.total_s, row, gap_s)
        if self._keep:
            self.gaps.append((row, gap_s))


def _name(key: int) -> str:
    return f"session {key >> 16} turn {key & 0xFFFF}"


def turn_keys(rows: pd.DataFrame) -> np.ndarray:
    """Return one integer per (session, turn), in their order."""
    return (rows["session"].to_numpy(np.int64) << 16) + rows["turn"].to_numpy(np.int64)


def _by_turn(row: np.ndarray, t: np.ndarray, value: np.ndarray) -> _Events:
    """Return the rows by turn and then time; at equal times in the order given."""
    order = np.lexsort((t, row))
    return row[order], t[order], value[order]


def _course(turns: _Turns) -> dict[str, np.ndarray]:
    reply_done_s = turns.reduce("t", "max", "reply_done")
    heard_s = _select(turns, turns.reduce("value", "max", "playback_done"), turns.reduce("value", "max", "barge_in"))
    lost_s = [turns.reduce("t", "min", f"turn_{end}") for end in (FAILED, ABORTED, REJECTED)]
    return {
        "session": turns.keys >> 16,
        "turn": turns.keys & 0xFFFF,
        "status": turns.status,
        "spoken": turns.spoken,
        "turn_start_s": turns.reduce("t", "min", "turn_start"),
        "turn_end_s": turns.end_s,
        "completion_s": _select(turns, reply_done_s, turns.cut_s),
        "ended_s": np.fmin.reduce([reply_done_s, turns.cut_s, *lost_s]),
        "send_delay_s": turns.reduce("value", "first", "turn_end"),
        "e2e_s": np.where(turns.completed, reply_done_s - turns.end_s, np.nan),
        "heard_s": np.where(turns.spoken, heard_s, np.nan),
        "barge_in_missed": turns.has("barge_in_missed"),
    }


def _select(turns: _Turns, completed: np.ndarray, barged_in: np.ndarray) -> np.ndarray:
    return np.select([turns.completed, turns.barged_in], [completed, barged_in], np.nan)


def _text(turns: _Turns) -> dict[str, np.ndarray]:
    longest_s = turns.of_started(turns.text.longest_s)
    intervals = np.maximum(_arrived(turns) - 1, 1)
    mean_s = turns.of_started(turns.text.total_s) / intervals
    return {
        "ttft_s": turns.reduce("t", "min", "first_text") - turns.end_s,
        "tbt_mean_s": np.where(np.isnan(longest_s), np.nan, mean_s),
        "tbt_max_s": longest_s,
    }


def _arrived(turns: _Turns) -> np.ndarray:
    """Return the text tokens that reached the client, by the server's count where it states one."""
    counted = np.nansum([turns.reduce("value", "sum", kind) for kind in ("first_text", "text")], axis=0)
    stated = turns.reduce("value", "sum", "usage", ENTRY)
    return np.where(np.isnan(stated), counted, stated)


def _classes(turns: _Turns, trace: pd.DataFrame, names: np.ndarray) -> dict[str, np.ndarray]:
    rows = turns.of_started(np.argsort(turn_keys(trace)))
    due = {name: trace[name].to_numpy(float)[rows] for name in DEADLINES}
    priority = np.nan_to_num(trace["priority"].to_numpy(float)[rows]).astype(int)
    return {"request_class": names[rows], "priority": priority, **due, "tbt_p99_s": _tbt_p99(turns)}


def _tbt_p99(turns: _Turns) -> np.ndarray:
    p99_s = np.full(len(turns), np.nan)
    if not turns.text.gaps:
        return p99_s
    row, gap_s = (np.concatenate(each) for each in zip(*turns.text.gaps, strict=True))
    row = turns.place[row]
    order = np.argsort(row, kind="stable")[np.count_nonzero(row < 0) :]
    row, gap_s, arrived = row[order], gap_s[order], _arrived(turns)
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    for start, end in zip(starts, np.append(starts, row.size)[1:], strict=True):
        together = max(0, int(arrived[row[start]]) - 1 - (end - start))
        p99_s[row[start]] = np.percentile(np.append(np.zeros(together), gap_s[start:end]), 99)
    return p99_s


def _audio(turns: _Turns) -> dict[str, np.ndarray]:
    first_s, last_s, max_gap_s, underrun_fixed_s = (np.full(len(turns), np.nan) for _ in range(4))
    audio_s, packets = (np.where(turns.spoken, 0.0, np.nan) for _ in range(2))
    for row, player in turns.players().items():
        first_s[row], last_s[row] = player.start_s, player.last_packet_s
        audio_s[row], packets[row] = player.total_s, player.packets
        # A barge-in during a pause ends it; no packet would show that pause.
        cut_gap_s = max(0.0, turns.cut_s[row] - player.end_s) if turns.barged_in[row] else 0.0
        if turns.completed[row] or turns.barged_in[row]:
            max_gap_s[row] = max(player.max_gap_s, cut_gap_s)
            underrun_fixed_s[row] = player.underrun_fixed_s + cut_gap_s
    whole = np.where(turns.completed, audio_s, np.nan)
    return {
        "audio_ttfp_s": np.where(turns.has("early_reply"), np.nan, first_s - turns.end_s),
        "rtf": (last_s - turns.end_s) / whole,
        "rtf_gen": np.where(packets > 1, last_s - first_s, np.nan) / whole,
        "audio_s": audio_s,
        "packets": packets,
        "max_gap_s": max_gap_s,
        "underrun_fixed_s": underrun_fixed_s,
        "continuous": _continuous(turns, max_gap_s),
        "continuous_fixed": _continuous(turns, underrun_fixed_s),
    }


def _continuous(turns: _Turns, interruption_s: np.ndarray) -> np.ndarray:
    """Return whether replies were continuous. Missing where no whole reply was to be heard; False where one was and
    cannot be judged (NaN)."""
    judged = turns.spoken & ~turns.barged_in
    return np.where(judged, np.fromiter(map(is_continuous, interruption_s), bool), np.nan)


def _tokens(turns: _Turns) -> dict[str, np.ndarray]:
    """Return the production tokens generated and heard at each stage.

    A reply that ended by itself was heard in full; for a reply cut short, the gateway logged the heard tokens; of a
    text reply, the tokens that reached the client were read.
    """
    arrived = _arrived(turns)
    columns = {}
    for stage in AR_STAGES:
        ended = [turns.reduce("value", "sum", kind, stage) for kind in ("finish", "abort")]
        total = np.where(np.isnan(ended).all(axis=0), np.nan, np.nansum(ended, axis=0))
        generated = np.where(np.isnan(total), turns.reduce("value", "sum", "token", stage), total)
        generated[np.isnan(generated) & turns.has("arrive", stage)] = 0
        heard = np.select(
            [turns.completed, ~turns.spoken, turns.barged_in],
            [generated, np.minimum(arrived, generated), turns.reduce("value", "max", "heard", stage)],
            np.nan,
        )
        heard[np.isnan(heard) & (generated == 0)] = 0
        for row in np.flatnonzero(heard > generated):
            raise ValueError(
                f"the log says that of {turns.name(row)} {heard[row]:g} tokens of the {stage} were heard, "
                f"but only {generated[row]:g} generated"
            )
        columns |= {f"generated_{stage}": generated, f"heard_{stage}": heard}
    return columns


def _service(turns: _Turns) -> dict[str, np.ndarray]:
    reported = np.zeros(len(turns), bool)
    preemptions = np.zeros(len(turns))
    columns = {}
    for stage in STAGES:
        arrive_s = turns.reduce("t", "min", "arrive", stage)
        columns[f"queueing_{stage}_s"] = turns.reduce("t", "min", "start", stage) - arrive_s
        reported |= turns.has("arrive", stage)
        preemptions += np.nan_to_num(turns.reduce("t", "count", "preempt", stage))
    columns |= _reloads(turns)
    return columns | {"preemptions": np.where(reported, preemptions, np.nan)}


def _reloads(turns: _Turns) -> dict[str, np.ndarray]:
    """Return the waits for KV. 0 for a turn that the first stage reported and that waited for nothing; missing for a
    wait without an end."""
    started = turns.has("start", ENTRY)
    wait_s = turns.reduce("t", "max", "load_end", ENTRY) - turns.reduce("t", "min", "load_start", ENTRY)
    blocks = turns.reduce("value", "sum", "load_end", ENTRY)
    preloaded = turns.reduce("value", "sum", "preloaded", ENTRY)
    waited = turns.has("load_start", ENTRY)
    return {
        "reload_s": np.where(waited, wait_s, np.where(started, 0.0, np.nan)),
        "reload_blocks": np.where(started, np.nan_to_num(blocks), np.nan),
        "preloaded_blocks": np.where(started, np.nan_to_num(preloaded), np.nan),
    }
