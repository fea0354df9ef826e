"""From the event log of interaction sessions to one row per frame: when it was due, and what came back.

A Step returns what a session said since the last one, so a frame's tokens mostly answer the frame before (specification
2.1). Due times are scheduled ones: neither a late client nor a skipped tick moves them (coordinated omission).
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

DELIVERED, EMPTY, UNANSWERED, FAILED = "delivered", "empty", "unanswered", "failed"

UNJUDGED = 2
"""First frames of a session that may be empty without anybody being silent (specification 2.2)."""

COLUMNS: dict[str, tuple[str, str]] = {
    "session": ("int64", "session of the trace"),
    "frame": ("int64", "frame within the session"),
    "status": (
        "str",
        "delivered (its Step returned text), empty (returned none), unanswered (never returned) or failed (the session "
        "did before its Step returned)",
    ),
    "due_s": ("float64", "time of the scheduled end of the frame's audio"),
    "send_delay_s": ("float64", "actual send behind that schedule; missing for a frame that was not sent"),
    "beat_s": ("float64", "time of the first of the session's ticks after the audio is due at the gateway"),
    "tick": ("Int64", "number of the tick whose Step fed it; missing when none did"),
    "dispatch_s": ("float64", "time of the dispatch of that Step"),
    "return_s": ("float64", "time at which it returned for this session"),
    "latency_s": ("float64", "return_s - dispatch_s"),
    "arrive_s": ("float64", "time at which what it returned is at the client"),
    "tokens": ("Int64", "text tokens returned; 0 where its Step fed a later frame too, which has them"),
    "first": ("bool", "the session's first Step, which alone waits for the model's work"),
    "judged": (
        "bool",
        "counts for speech: not among the session's first two, nor a last one after which the user hung up unanswered",
    ),
}
"""Columns of a frame table: dtype and meaning. Times are s since the start of the run."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The periodic task that a run was (specification 2.1 and 2.2).

    `budget_s`: B, frame period and deadline. `cap_s`: longest wait of a Step. `target_s`: latency that admission
    aims at. `slots`: beats per B; session i is due where beat % slots = i % slots. `replicas`: of
    the engine, each with ticks of its own, numbered replicas * beat + replica; session i is with i % replicas.
    """

    budget_s: float
    cap_s: float
    target_s: float
    slots: int = 1
    replicas: int = 1

    def next_s(self, session: np.ndarray, at_s: np.ndarray) -> np.ndarray:
        """Return the first tick of each session at `at_s` or later, in s."""
        offset = session % self.slots / self.slots
        return (np.ceil(at_s / self.budget_s - offset - 1e-9) + offset) * self.budget_s


def frame_table(events: pd.DataFrame, trace: pd.DataFrame, beat: Beat) -> pd.DataFrame:
    """Return one row per frame that was sent, or that a failed session still owed; by session and frame.

    `events` is the event log (columns t, kind, session, turn, stage, value), `trace` the rows of the trace. Rejected
    sessions have no rows. ValueError when the log has a frame that the trace lacks.
    """
    log = Kinds(events)
    sent_keys, _, lags_s = _by_frame(log, "turn_end")
    failed_sessions = log.of("session_failed")["session"]
    planned = _keys(trace["session"].to_numpy(), trace["turn"].to_numpy())
    if not np.isin(sent_keys, planned).all():
        raise ValueError("the log has a frame that the trace lacks")
    order = np.argsort(planned, kind="stable")
    planned = planned[order]
    sent = np.isin(planned, sent_keys)
    owed = np.isin(planned >> 32, failed_sessions)
    kept = sent | owed
    keys, sent, rows = planned[kept], sent[kept], order[kept]
    session, frame = keys >> 32, keys & 0xFFFFFFFF
    due_s = (trace["arrival_s"] + trace["audio_s"]).to_numpy()[rows]
    beat_s = beat.next_s(session, due_s + trace["network_s"].to_numpy()[rows])

    fed_keys, fed_s, _ = _by_frame(log, "fed")
    fed = _exactly(keys, fed_keys)
    out_keys, out_s, out_tokens = _by_frame(log, "frame_out")
    out = _covering(keys, out_keys)
    out[fed < 0] = -1
    heard_keys, heard_s, _ = _by_frame(log, "frame")
    heard = _covering(keys, heard_keys)
    heard[out < 0] = -1

    dispatch_s, return_s = _at(fed, fed_s), _at(out, out_s)
    spoke = _at(out, out_tokens) > 0
    newest = (out >= 0) & (_at(out, out_keys) == keys)
    status = np.select([out < 0, spoke], [UNANSWERED, DELIVERED], EMPTY)
    status[(out < 0) & np.isin(session, failed_sessions)] = FAILED
    last = np.append(session[1:] != session[:-1], True) if keys.size else np.zeros(0, bool)
    opening = np.searchsorted(out_keys, session << 32)  # of each session's first Step
    columns = {
        "session": session,
        "frame": frame,
        "status": status,
        "due_s": due_s,
        "send_delay_s": _at(_exactly(keys, sent_keys), lags_s),
        "beat_s": beat_s,
        "tick": _ticks(log, session, dispatch_s, beat.replicas),
        "dispatch_s": dispatch_s,
        "return_s": return_s,
        "latency_s": return_s - dispatch_s,
        "arrive_s": _at(heard, heard_s),
        "tokens": np.where(newest, _at(out, out_tokens), np.where(out >= 0, 0.0, np.nan)),
        "first": (out >= 0) & (out == opening),
        "judged": (frame >= UNJUDGED) & ~(last & (status == UNANSWERED)),
    }
    return pd.DataFrame({name: pd.array(columns[name], dtype=dtype) for name, (dtype, _) in COLUMNS.items()})


def typed(table: pd.DataFrame) -> pd.DataFrame:
    """Return a frame table with the dtypes of `COLUMNS`, as files do not keep all of them."""
    return table.astype({name: dtype for name, (dtype, _) in COLUMNS.items()})


BUCKET_S = 10.0
"""Length of the buckets of elapsed time in which latency is judged, as in the paper's figures."""

AT_WALL = 0.95
"""Share of the longest wait from which a latency counts as the wall: 1.52 s of 1.6 s at B = 2 s."""

PERCENTILES = (50, 90, 99)


def bucket_latencies(frames: pd.DataFrame) -> pd.DataFrame:
    """Return latency by elapsed time: columns t_s (begin of the bucket), n, p50, p90 and p99 in s; first frames
    included.

    `frames` is a frame table. A frame belongs to the bucket in which its Step was dispatched. Buckets without frames
    are left out, and a last bucket with frames in less than half of it is part of the one before.
    """
    dispatch_s, latency_s = np.asarray(frames["dispatch_s"]), np.asarray(frames["latency_s"])
    order = np.argsort(dispatch_s, kind="stable")
    order = order[~np.isnan(latency_s[order])]
    dispatch_s, latency_s = dispatch_s[order], latency_s[order]
    buckets = _buckets(dispatch_s, BUCKET_S)
    begins = np.flatnonzero(np.diff(buckets, prepend=-1))
    rows = [
        (BUCKET_S * buckets[begin], len(part), *np.percentile(part, PERCENTILES))
        for begin, part in zip(begins, np.split(latency_s, begins)[1:], strict=True)
    ]
    return pd.DataFrame(rows, columns=["t_s", "n", *(f"p{p}" for p in PERCENTILES)])


def time_of_wall(frames: pd.DataFrame, beat: Beat) -> float | None:
    """Return when the run hit the latency wall, in s; None when it did not (Metronome, Figures 1 and 4; specification
    part 4).

    A run walls iff the median latency of some 10 s bucket and of all later ones, to the last, is at least 0.95 of the
    longest wait. The time is that of the first Step in the first such bucket which took as long.
    """
    level_s = AT_WALL * beat.cap_s
    buckets = bucket_latencies(frames)
    below = np.flatnonzero(np.asarray(buckets["p50"]) < level_s)
    first = int(below[-1]) + 1 if below.size else 0
    if first >= len(buckets):
        return None
    latency_s, dispatch_s = np.asarray(frames["latency_s"]), np.asarray(frames["dispatch_s"])
    begin_s = np.asarray(buckets["t_s"])[first]
    return float(dispatch_s[(latency_s >= level_s) & (dispatch_s >= begin_s)].min())


def _buckets(dispatch_s: np.ndarray, bucket_s: float) -> np.ndarray:
    buckets = (dispatch_s // bucket_s).astype(np.int64)
    if buckets.size and dispatch_s[-1] - buckets[-1] * bucket_s < bucket_s / 2 and buckets[0] < buckets[-1]:
        buckets[buckets == buckets[-1]] -= 1
    return buckets


class Kinds:
    """An event log by kind, in the order of events."""

    def __init__(self, events: pd.DataFrame) -> None:
        kinds = pd.Categorical(events["kind"])
        self._codes = {name: code for code, name in enumerate(kinds.categories)}
        order = np.argsort(kinds.codes, kind="stable")
        self._columns = {name: events[name].to_numpy()[order] for name in ("t", "session", "turn", "value")}
        self._edges = np.searchsorted(kinds.codes[order], np.arange(len(kinds.categories) + 1))

    def of(self, kind: str) -> dict[str, np.ndarray]:
        """Return the columns t (s), session, turn and value of its events; empty ones where there are none."""
        code = self._codes.get(kind)
        rows = slice(0) if code is None else slice(self._edges[code], self._edges[code + 1])
        return {name: values[rows] for name, values in self._columns.items()}


def _keys(session: np.ndarray, frame: np.ndarray) -> np.ndarray:
    """Return one integer per (session, frame), in their order."""
    return (session.astype(np.int64) << 32) + frame.astype(np.int64)


def _by_frame(log: Kinds, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return keys, ascending, times and values of the events of a kind that is about frames."""
    events = log.of(kind)
    keys = _keys(events["session"], events["turn"])
    order = np.argsort(keys, kind="stable")
    return keys[order], events["t"][order], events["value"][order]


def _exactly(keys: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Return where each key is in `among`, ascending; -1 where it is not."""
    place = _covering(keys, among)
    place[(place >= 0) & (_at(place, among) != keys)] = -1
    return place


def _covering(keys: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Return where the first key of the same session and the same or a later frame is in `among`; -1 without one."""
    place = np.searchsorted(among, keys)
    same_session = np.append(among, -1)[place] >> 32 == keys >> 32
    return np.where(same_session, place, -1)


def _at(place: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return `values` at these places; NaN at -1."""
    return np.append(values, np.nan)[place]


def _ticks(log: Kinds, session: np.ndarray, dispatch_s: np.ndarray, replicas: int) -> np.ndarray:
    """Return the number of the tick at which each frame was dispatched; NaN where it was not."""
    ticks = log.of("tick")
    times = np.unique(ticks["t"])
    keys = np.searchsorted(times, ticks["t"]) * replicas + ticks["turn"] % replicas
    order = np.argsort(keys)
    wanted = np.searchsorted(times, dispatch_s) * replicas + session % replicas
    place = np.searchsorted(keys[order], wanted)
    numbers = np.append(ticks["turn"][order], np.nan)[place]
    return np.where(np.isnan(dispatch_s), np.nan, numbers)
