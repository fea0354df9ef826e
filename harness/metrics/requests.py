"""From the event log to one row per turn: what one user felt in one exchange.

Every latency runs from the *scheduled* end of the user's turn, not from the send, so that a late client
cannot hide a slow server (coordinated omission). What was not measured is missing (NaN, NA), never 0 or True.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pandas as pd

from harness.metrics.playback import Playback, is_continuous
from harness.metrics.stages import AR_STAGES, STAGES
from workloads.classes import DEADLINES, class_of

COMPLETED, BARGED_IN, FAILED, UNFINISHED = "completed", "barged_in", "failed", "unfinished"
ABORTED = "aborted"

COLUMNS: dict[str, tuple[str, str]] = {
    "session": ("int64", "session of the trace"),
    "turn": ("int64", "turn within the session"),
    "status": (
        "str",
        "completed, barged_in, failed (error or timeout), unfinished (at the end of the run) or aborted (its pool "
        "ended)",
    ),
    "spoken": ("bool", "the trace asks for a spoken reply; a text-only reply has no audio metrics"),
    "turn_start_s": ("float64", "time at which the user begins"),
    "turn_end_s": ("float64", "time of the scheduled end of the user's turn"),
    "completion_s": ("float64", "time at which the reply was received in full, or of the barge-in"),
    "send_lag_s": ("float64", "actual send of the end of the turn behind its schedule"),
    "audio_ttfp_s": ("float64", "turn_end_s to the first non-empty audio packet"),
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
    "generated_thinker": ("Int64", "text tokens produced, with those in flight at an abort"),
    "heard_thinker": ("Int64", "of these, heard; missing when unknown (failed or unfinished speech)"),
    "generated_talker": ("Int64", "codec frames produced, with those in flight at an abort"),
    "heard_talker": ("Int64", "of these, heard; missing when unknown (failed or unfinished speech)"),
    "queueing_thinker_s": ("float64", "arrival in the stage's queue to the first step that schedules it"),
    "queueing_talker_s": ("float64", "the same at the talker"),
    "queueing_vocoder_s": ("float64", "the same at the vocoder"),
    "reload_s": ("float64", "wait at the thinker for KV from host memory, between arrival and first step"),
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
"""Those that follow where the trace has classes."""


def request_table(events: pd.DataFrame, trace: pd.DataFrame) -> pd.DataFrame:
    """One row per started turn, ordered by session and turn, with the columns of `COLUMNS` and `CLASS_COLUMNS`.

    `events` is the event log (columns t, kind, session, turn, stage, value), `trace` the rows of the
    trace, of which session, turn, reply_audio_s and, where it has any, classes and deadlines are read. Raises
    ValueError when the log has a turn that the trace lacks, or says that more was heard than generated: no
    number from such a log would be right.
    """
    turns = _Turns(events, trace)
    columns = _course(turns) | _text(turns) | _audio(turns) | _tokens(turns) | _service(turns)
    wanted = COLUMNS
    if (names := class_of({str(name): trace[name] for name in trace})) is not None:
        columns |= _classes(turns, trace, names)
        wanted = COLUMNS | CLASS_COLUMNS
    return pd.DataFrame({name: pd.array(columns[name], dtype=dtype) for name, (dtype, _) in wanted.items()})


class _Turns:
    """The started turns, ordered by session and turn, and their events. Arrays have one element per turn."""

    def __init__(self, events: pd.DataFrame, trace: pd.DataFrame) -> None:
        keys, trace_keys = _keys(events), _keys(trace)
        self.keys = np.unique(keys[(events["kind"] == "turn_start").to_numpy()])
        unknown = np.flatnonzero(~np.isin(self.keys, trace_keys))
        if unknown.size:
            raise ValueError(f"the trace lacks {self.name(unknown[0])} of the log")
        belongs = np.isin(keys, self.keys)
        log = pd.DataFrame(
            {
                "row": np.searchsorted(self.keys, keys[belongs]),
                "t": events["t"].to_numpy(float)[belongs],
                "value": events["value"].to_numpy(float)[belongs],
                "kind": pd.Categorical(events["kind"][belongs]),
                "stage": pd.Categorical(events["stage"][belongs]),
            }
        )
        self._parts = defaultdict(lambda: log.iloc[:0], iter(log.groupby(["kind", "stage"], observed=True)))

        self.spoken = np.isin(self.keys, trace_keys[trace["reply_audio_s"].notna().to_numpy()])
        self.end_s = self.reduce("t", "min", "turn_end")
        self.cut_s = self.reduce("t", "min", "barge_in")
        self.status = np.select(
            [
                self.has("turn_failed"),
                self.has("turn_aborted"),
                ~self.has("turn_done"),
                ~np.isnan(self.cut_s),
            ],
            [FAILED, ABORTED, UNFINISHED, BARGED_IN],
            COMPLETED,
        )
        self.completed = self.status == COMPLETED
        self.barged_in = self.status == BARGED_IN

    def __len__(self) -> int:
        return len(self.keys)

    def name(self, row: int) -> str:
        return f"session {self.keys[row] >> 16} turn {self.keys[row] & 0xFFFF}"

    def events(self, kind: str, stage: str = "") -> pd.DataFrame:
        """Columns row (of the turn), t, value; in the order of the log."""
        return self._parts[kind, stage]

    def reduce(self, column: str, how: str, kind: str, stage: str = "") -> np.ndarray:
        """Reduce a column of these events to a float per turn; NaN for a turn that has none."""
        found = self.events(kind, stage).groupby("row")[column].agg(how)
        result = np.full(len(self), np.nan)
        result[found.index.to_numpy(int)] = found.to_numpy(float)
        return result

    def has(self, kind: str, stage: str = "") -> np.ndarray:
        """Whether each turn has such an event."""
        return np.isin(np.arange(len(self)), self.events(kind, stage)["row"])


def _keys(rows: pd.DataFrame) -> np.ndarray:
    """One integer per (session, turn), in their order."""
    return (rows["session"].to_numpy(np.int64) << 16) + rows["turn"].to_numpy(np.int64)


def _by_turn(events: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, t and value of events, by turn and then time; at equal times in the order given."""
    row, t, value = (np.asarray(events[name]) for name in ("row", "t", "value"))
    order = np.lexsort((t, row))
    return row[order], t[order], value[order]


def _course(turns: _Turns) -> dict[str, np.ndarray]:
    reply_done_s = turns.reduce("t", "max", "reply_done")
    heard_s = _select(
        turns, turns.reduce("value", "max", "playback_done"), turns.reduce("value", "max", "barge_in")
    )
    return {
        "session": turns.keys >> 16,
        "turn": turns.keys & 0xFFFF,
        "status": turns.status,
        "spoken": turns.spoken,
        "turn_start_s": turns.reduce("t", "min", "turn_start"),
        "turn_end_s": turns.end_s,
        "completion_s": _select(turns, reply_done_s, turns.cut_s),
        "send_lag_s": turns.reduce("value", "first", "turn_end"),
        "e2e_s": np.where(turns.completed, reply_done_s - turns.end_s, np.nan),
        "heard_s": np.where(turns.spoken, heard_s, np.nan),
        "barge_in_missed": turns.has("barge_in_missed"),
    }


def _select(turns: _Turns, completed: np.ndarray, barged_in: np.ndarray) -> np.ndarray:
    """The one for completed turns, the other for barged-in ones, else missing."""
    return np.select([turns.completed, turns.barged_in], [completed, barged_in], np.nan)


def _text(turns: _Turns) -> dict[str, np.ndarray]:
    row, t, tokens = _by_turn(pd.concat([turns.events("first_text"), turns.events("text")]))
    follows = row[1:] == row[:-1]
    gap_row, gap_s = row[1:][follows], np.diff(t)[follows]
    longest_s = np.full(len(turns), np.nan)
    np.fmax.at(longest_s, gap_row, gap_s)
    intervals = np.bincount(row, tokens, minlength=len(turns)) - 1
    total_s = np.bincount(gap_row, gap_s, minlength=len(turns))
    return {
        "ttft_s": turns.reduce("t", "min", "first_text") - turns.end_s,
        "tbt_mean_s": np.where(np.isnan(longest_s), np.nan, total_s / np.maximum(intervals, 1)),
        "tbt_max_s": longest_s,
    }


def _classes(turns: _Turns, trace: pd.DataFrame, names: np.ndarray) -> dict[str, np.ndarray]:
    keys = _keys(trace)
    by_key = np.argsort(keys)
    rows = by_key[np.searchsorted(keys, turns.keys, sorter=by_key)]
    due = {name: trace[name].to_numpy(float)[rows] for name in DEADLINES}
    priority = np.nan_to_num(trace["priority"].to_numpy(float)[rows]).astype(int)
    return {"request_class": names[rows], "priority": priority, **due, "tbt_p99_s": _tbt_p99(turns)}


def _tbt_p99(turns: _Turns) -> np.ndarray:
    row, t, tokens = _by_turn(pd.concat([turns.events("first_text"), turns.events("text")]))
    p99_s = np.full(len(turns), np.nan)
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    for start, end in zip(starts, np.append(starts, row.size)[1:], strict=True):
        gaps_s = np.diff(t[start:end])
        if gaps_s.size:
            together = max(0, int(np.nansum(tokens[start:end])) - 1 - gaps_s.size)
            p99_s[row[start]] = np.percentile(np.append(np.zeros(together), gaps_s), 99)
    return p99_s


def _audio(turns: _Turns) -> dict[str, np.ndarray]:
    first_s, last_s, max_gap_s, underrun_fixed_s = (np.full(len(turns), np.nan) for _ in range(4))
    audio_s, packets = (np.where(turns.spoken, 0.0, np.nan) for _ in range(2))
    for row, player in _players(turns).items():
        first_s[row], last_s[row] = player.start_s, player.last_packet_s
        audio_s[row], packets[row] = player.total_s, player.packets
        # A barge-in during a pause ends it; no packet would show that pause.
        cut_gap_s = max(0.0, turns.cut_s[row] - player.end_s) if turns.barged_in[row] else 0.0
        if turns.completed[row] or turns.barged_in[row]:
            max_gap_s[row] = max(player.max_gap_s, cut_gap_s)
            underrun_fixed_s[row] = player.underrun_fixed_s + cut_gap_s
    whole = np.where(turns.completed, audio_s, np.nan)
    return {
        "audio_ttfp_s": first_s - turns.end_s,
        "rtf": (last_s - turns.end_s) / whole,
        "rtf_gen": np.where(packets > 1, last_s - first_s, np.nan) / whole,
        "audio_s": audio_s,
        "packets": packets,
        "max_gap_s": max_gap_s,
        "underrun_fixed_s": underrun_fixed_s,
        "continuous": _continuous(turns, max_gap_s),
        "continuous_fixed": _continuous(turns, underrun_fixed_s),
    }


def _players(turns: _Turns) -> dict[int, Playback]:
    """Play every spoken reply up to its barge-in. A turn without a non-empty packet has no player."""
    row, t, audio_s = _by_turn(turns.events("audio"))
    kept = turns.spoken[row] & (audio_s > 0) & ~(t > turns.cut_s[row])
    players: dict[int, Playback] = {}
    for index, *packet in zip(row[kept].tolist(), t[kept].tolist(), audio_s[kept].tolist(), strict=True):
        if index not in players:
            players[index] = Playback()
        players[index].arrive(*packet)
    return players


def _continuous(turns: _Turns, interruption_s: np.ndarray) -> np.ndarray:
    """Missing where no whole reply was to be heard; False where one was and cannot be judged (NaN)."""
    judged = turns.spoken & ~turns.barged_in
    return np.where(judged, np.fromiter(map(is_continuous, interruption_s), bool), np.nan)


def _tokens(turns: _Turns) -> dict[str, np.ndarray]:
    """Production tokens generated and heard at each stage.

    A reply that ended by itself was heard in full; of a reply cut short, the gateway logged what was heard;
    of a text reply, what reached the client was read.
    """
    arrived = np.nansum([turns.reduce("value", "sum", kind) for kind in ("first_text", "text")], axis=0)
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
    """0 for a turn that the thinker reported and that waited for nothing; missing for a wait without an end."""
    started = turns.has("start", "thinker")
    wait_s = turns.reduce("t", "max", "load_end", "thinker") - turns.reduce(
        "t", "min", "load_start", "thinker"
    )
    blocks = turns.reduce("value", "sum", "load_end", "thinker")
    preloaded = turns.reduce("value", "sum", "preloaded", "thinker")
    waited = turns.has("load_start", "thinker")
    return {
        "reload_s": np.where(waited, wait_s, np.where(started, 0.0, np.nan)),
        "reload_blocks": np.where(started, np.nan_to_num(blocks), np.nan),
        "preloaded_blocks": np.where(started, np.nan_to_num(preloaded), np.nan),
    }
