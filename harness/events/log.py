"""The event log of a run: the one source from which every metric, table and picture is computed.

Client kinds (`stage` is ""): connected (live; value = seconds that its connection took to set up, the greetings
included; again where the client had to call again); session_start; turn_start (the user begins); turn_end (at the
*scheduled* end of the user's turn, or where the line was lost before; value = how much later it was sent, s; missing
for one that was not); first_text and text (text tokens at the client; value = count, 1 for a message of a server that
states none); audio (a packet; value = seconds of audio); reply_done; barge_in (value = seconds heard); barge_in_missed
(the reply ended before the drawn cut); late_audio (live; a packet of a reply that the user has already cut; value =
seconds of audio); early_reply (live; the reply to a turn began before the user had finished; value = seconds of audio
before the end); silent_reply (live; all of a reply's sound, of a cut one more than 1 s, was below -60 dBFS; value = its
RMS in dBFS, -120 for zeros; on open microphones stage = the number of the reply); unconfirmed (live; the session began
without the event that confirms the client's settings; value = seconds waited for it after the server's greeting);
rtp_packets, rtp_lost, rtp_late, rtp_jitter and rtp_buffered (live, over WebRTC, at the end of a call; value = packets
that the server sent, that were lost, that came too late; jitter and mean wait in the jitter buffer, s);
end_heard (live; the server reports that it heard the end of the user's turn); playback_done (value = seconds played);
shed (the server rejected the session); turn_done; turn_failed; turn_rejected (by admission); turn_aborted (by the
backlog it is of, when the last user has gone); backlog_dry (of its last session: a slot of the backlog stays empty, as
the trace holds no more; value = sessions under way); session_end.

Client kinds of interaction sessions, whose turns are frames: connected; session_start; admitted or shed; turn_end (at
the *scheduled* time at which the frame's audio is complete; value = how much later it was sent, s); frame (what a Step
returned is at the client; turn = newest frame fed in that Step, value = text tokens, 0 for an empty frame);
session_failed; session_end.

Client kinds of open microphones, in addition to those of turns (barge_in is the server's cut of the reply that answers,
whatever made it; text, audio and reply_done are of that reply too): user_speech (a stretch of the user's sound has
ended; stage = turn, or what it is of `workloads.columns.duplex_events`), agent_speech (of what was played; stage = its
reply) and, live, server_speech (of what was sent), each with value = its length in s; told (the client learns
from the server: stage = speech_started, speech_stopped, committed, reply_begun, first_packet or stopped, value =
number of the reply, if it is of one). There the server kinds have the number of the reply for the turn.

Server kinds: refused (a turn whose prompt does not fit, as by HTTP 400; value = tokens of the prompt); rejected (by
admission, as by HTTP 429; stage = the reason, value as before); arrive (request enters a stage's queue); start (first
step that schedules it begins); token (value = production tokens at the end of a step: text tokens at the thinker, codec
frames at the talker); finish and abort (value = production tokens in all, those in flight included); computed (with the
abort of a backlog's request; value = tokens of its prompt that had KV); preempt; heard (at barge-in; value = production
tokens of the stage that the listener heard); load_start and load_end (a request waits for KV from the host before it
starts, or after its first token for that from the replica which computed it; value of the end = blocks loaded for it, 0
if it waited for somebody else's load); preloaded (at its start; value = blocks that it found because they were loaded
before it came).

Server kinds of interaction sessions, instead of token, finish and abort. Of the tick (session -1, turn = its number):
tick (its Step is dispatched; value = sessions due); tick_end (it returns; value = 1 if the cap on its wait cut it off);
tick_skipped (the Step before had not returned); cap (at the end of a Step; value = most sessions that admission lets
in). Of a session: fed (at the dispatch of the Step; value = tokens fed with this frame); frame_out (at the return; turn
= newest frame fed, value = text tokens collected); recycle (its request is replaced; value = audio tokens fed again);
max_len (it reached max_model_len). Of the engine (session -1, turn -1): alloc_fail (blocks were refused; value = 0 to a
request that waits for admission, 1 to a running one; at most one of each value a step).

Of a live run the client logs first_answer (the first text of a reply that is not reasoning, after reasoning) and what
the server's messages tell: finish, abort and heard from the usage of a response,
usage (value = its text tokens that came here), prompt (value = tokens of the prompt) and prompt_cached (value = its
tokens that the server found in its cache); of frames, fed when the last of a frame's audio was about to go, later by
what the server says it waited, and frame_out when its answer was read. Where a server does not tell what was heard of a
cut reply, it is the share of the received audio that was played, of the tokens.

Run kinds: run_end. Times in seconds since the run began, on the run's clock.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from harness.clocks.clock import VirtualClockLoop

EVENT_FIELDS = ("t", "kind", "session", "turn", "stage", "value")

STEP_FIELDS = (
    "t_s",
    "dt_s",
    "stage",
    "replica",
    "requests",
    "tokens",
    "prefill_tokens",
    "running",
    "waiting",
    "held",
    "kv_used",
    "kv_blocks",
    "preempted",
)

SHARE_FIELD = "sms"
"""Besides, where a system divides a GPU: SMs that the step was given."""

FLOATS = {"t", "value", "t_s", "dt_s", SHARE_FIELD}

ROW_GROUP = 1 << 20
"""Rows of a row group on disk, and most rows of a table that are in memory where there is a folder for the others."""
PIECE = 1 << 16
"""Rows that are read of such a file at a time."""
WOVEN = 1 << 17
"""Rows in blocks, or to come, after which they are put in their places."""
COMPRESSION = "zstd"


class _Names(dict[str, int]):
    """Strings as small integers, in order of first use."""

    def __missing__(self, name: str) -> int:
        code = self[name] = len(self)
        return code

    def column(self, codes: np.ndarray) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(list(self), pa.string()))


class _Rows:
    """The rows of one table: flat in memory. A row group goes to a file as soon as it is full."""

    def __init__(self, fields: tuple[str, ...], names: dict[str, _Names], path: Path | None) -> None:
        self.flat = array("d")
        self.path = path
        self.full = math.inf if path is None else ROW_GROUP * len(fields)
        self.written = 0
        self._fields, self._names = fields, names
        self._writer: pq.ParquetWriter | None = None

    def __len__(self) -> int:
        return self.written + len(self.flat) // len(self._fields)

    def spill(self) -> None:
        """Move the rows in memory to the file, as its next row group; there is at most one."""
        table = self.table().slice(0, ROW_GROUP)
        if self._writer is None:
            assert self.path is not None, "without a file nothing is ever full"
            self._writer = pq.ParquetWriter(self.path, table.schema, compression=COMPRESSION)
        self._writer.write_table(table, ROW_GROUP)
        self.written += table.num_rows
        del self.flat[: table.num_rows * len(self._fields)]

    def close(self) -> None:
        """End the table; a file that was begun gets all of it."""
        if self._writer is not None:
            while self.flat:
                self.spill()
            self._writer.close()

    def pieces(self) -> Iterator[pa.Table]:
        """Yield all rows, some at a time."""
        if self._writer is None:
            yield self.table()
            return
        with pq.ParquetFile(self.path) as file:
            for batch in file.iter_batches(PIECE):
                yield pa.Table.from_batches([batch])

    def table(self, start: int = 0) -> pa.Table:
        """Return the rows in memory from row `start` on."""
        rows = np.asarray(self.flat).reshape(-1, len(self._fields))[start:]
        columns = {}
        for i, field in enumerate(self._fields):
            if field in self._names:
                columns[field] = self._names[field].column(rows[:, i])
            else:
                columns[field] = rows[:, i].astype(float if field in FLOATS else np.int32)
        return pa.table(columns)


class _Woven:
    """Rows that are merged among the others when the table is read or has grown: blocks that are written now, as
    columns, and events at future times.

    Each row written meanwhile keeps the clock's time and the number of the timers that had fired by then. Future events
    have the same two, which give their place.
    """

    def __init__(self, clock: VirtualClockLoop, begin: int) -> None:
        self.clock = clock
        self.begin = begin
        self.count = 0
        self._at, self._fired = array("d"), array("d")
        self._blocks: list[tuple[int, float, float, np.ndarray, tuple[float, ...]]] = []
        self._later: list[tuple[float, np.ndarray, np.ndarray, tuple[float, ...]]] = []
        self._never: list[tuple[int, int, float, float, float]] = []
        self._newest = 0.0  # number of the latest `later`
        self._coming = np.empty((0, 1 + len(EVENT_FIELDS)))

    def written(self) -> None:
        """Note that a row was written."""
        clock = self.clock
        self._at.append(clock.time())
        self._fired.append(clock.fired)

    def block(self, turns: np.ndarray, facts: tuple[float, ...]) -> None:
        """Add rows of these sessions and turns after all written ones. `facts`: time, kind, stage and value."""
        clock = self.clock
        self._blocks.append((len(self._at), clock.time(), clock.fired, turns, facts))
        self.count += len(turns)

    def later(self, times: np.ndarray, turns: np.ndarray, facts: tuple[float, ...]) -> None:
        """Add future rows at these times, as if timers were set for them now. `facts`: kind, stage and value."""
        self._newest = self.clock.number()
        self._later.append((self._newest, times, turns, facts))
        self.count += len(turns)

    def never(self, session: int, turn: int) -> None:
        """Drop the announced rows of this turn that are still in the future."""
        self._never.append((session, turn, self.clock.time(), self.clock.fired, self._newest))

    def merge(self, flat: array) -> None:
        """Put blocks and the future rows whose time has come in their places."""
        fields = len(EVENT_FIELDS)
        rows, now, fired = self._to_come(), self.clock.time(), self.clock.fired
        rows = rows[np.lexsort((rows[:, 0], rows[:, 1]))]
        happened = np.count_nonzero((rows[:, 1] < now) | ((rows[:, 1] == now) & (rows[:, 0] <= fired)))
        come, self._coming = rows[:happened], rows[happened:]
        written = np.array(flat[self.begin * fields :]).reshape(-1, fields)
        at, numbers = np.array(self._at), np.array(self._fired)
        if self._blocks:
            sizes = [len(turns) for _, _, _, turns, _ in self._blocks]
            block = np.empty((sum(sizes), fields))
            block[:, 2:4] = np.concatenate([turns for _, _, _, turns, _ in self._blocks])
            facts = np.repeat([facts for *_, facts in self._blocks], sizes, axis=0)
            block[:, [0, 1, 4, 5]] = facts
            place, times, timers = (np.repeat(column, sizes) for column in list(zip(*self._blocks, strict=True))[:3])
            written = np.insert(written, place, block, axis=0)
            at, numbers = np.insert(at, place, times), np.insert(numbers, place, timers)
        place = np.searchsorted(at, come[:, 1], "left")
        for i in np.flatnonzero(place < np.searchsorted(at, come[:, 1], "right")):
            while place[i] < len(at) and at[place[i]] == come[i, 1] and numbers[place[i]] < come[i, 0]:
                place[i] += 1
        del flat[self.begin * fields :]
        flat.frombytes(np.insert(written, place, come[:, 1:], axis=0).tobytes())
        del self._at[:], self._fired[:]
        self._blocks.clear()
        self.begin, self.count = len(flat) // fields, len(self._coming)

    def _to_come(self) -> np.ndarray:
        """Return all rows that were in the future at the last merge or were announced since: number, fields."""
        rows = self._coming
        if self._later:
            sizes = [len(who) for _, _, who, _ in self._later]
            later = np.empty((sum(sizes), 1 + len(EVENT_FIELDS)))
            later[:, 0] = np.repeat([number for number, *_ in self._later], sizes)
            later[:, 1] = np.concatenate([times for _, times, _, _ in self._later])
            later[:, 3:5] = np.concatenate([who for _, _, who, _ in self._later])
            later[:, [2, 5, 6]] = np.repeat([facts for *_, facts in self._later], sizes, axis=0)
            rows = np.concatenate([rows, later])
            self._later.clear()
        if self._never:
            stays = np.ones(len(rows), bool)
            turns = rows[:, 3] + 1j * rows[:, 4]
            over = [session + 1j * turn for session, turn, *_ in self._never]
            theirs = np.flatnonzero(np.isin(turns, over))
            theirs = theirs[np.argsort(turns[theirs])]
            begins, ends = (np.searchsorted(turns[theirs], over, side) for side in ("left", "right"))
            for (_, _, now, fired, newest), begin, end in zip(self._never, begins, ends, strict=True):
                its = theirs[begin:end]
                number, at = rows[its, 0], rows[its, 1]
                stays[its[(number <= newest) & ((at > now) | ((at == now) & (number > fired)))]] = False
            rows = rows[stays]
            self._never.clear()
        return rows


class EventLog:
    """Append-only rows, flat in memory: 48 bytes an event, 104 bytes a step.

    `folder`: for tables of more than one row group, as Parquet files. None: everything stays in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._names = {"kind": _Names(), "stage": _Names()}
        self._kinds, self._stages = self._names["kind"], self._names["stage"]
        self._folder = folder
        self._event_rows = self._rows("events", EVENT_FIELDS)
        self._events, self._events_full = self._event_rows.flat, self._event_rows.full
        self._woven: _Woven | None = None
        self.cut_short = 0
        """Number of turns so far that `never` has cut short."""
        self._keep_steps(STEP_FIELDS)

    def _rows(self, name: str, fields: tuple[str, ...]) -> _Rows:
        return _Rows(fields, self._names, None if self._folder is None else self._folder / f"{name}.parquet")

    def _keep_steps(self, fields: tuple[str, ...]) -> None:
        self._step_rows = self._rows("steps", fields)
        self._steps, self._steps_full = self._step_rows.flat, self._step_rows.full
        self._shares = SHARE_FIELD in fields

    def divide(self) -> None:
        """Give steps a share of SMs. ValueError once there are steps."""
        if not self._shares:
            if len(self._step_rows):
                raise ValueError("steps have been logged without shares")
            self._keep_steps((*STEP_FIELDS, SHARE_FIELD))

    def event(self, t: float, kind: str, session: int, turn: int, stage: str = "", value: float = math.nan) -> None:
        self._events.extend((t, self._kinds[kind], session, turn, self._stages[stage], value))
        if self._woven is not None:
            self._woven.written()
        if len(self._events) >= self._events_full:
            self._spill_events()

    def event_of_each(self, t: float, kind: str, turns: np.ndarray, stage: str = "", value: float = math.nan) -> None:
        """Log the same event of several turns, in their order. `turns`: session and turn of each."""
        facts = t, self._kinds[kind], self._stages[stage], value
        if self._woven is None:
            for session, turn in turns.tolist():
                self.event(t, kind, int(session), int(turn), stage, value)
        else:
            self._woven.block(turns, facts)
            self._look_at_size()

    def knows(self, kind: str) -> bool:
        """Return whether there has been such an event."""
        return kind in self._kinds

    def later(self, clock: VirtualClockLoop, times: np.ndarray, kind: str, turns: np.ndarray, value: float) -> None:
        """Log a future event of each turn at its time, as if timers were set for them now, in their order."""
        if self._woven is None:
            self._woven = _Woven(clock, len(self._events) // len(EVENT_FIELDS))
        self._woven.later(times, turns, (self._kinds[kind], self._stages[""], value))
        self._look_at_size()

    def never(self, session: int, turn: int) -> None:
        """Drop the rows of this turn that `later` announced and whose time has not come."""
        self.cut_short += 1
        if self._woven is not None:
            self._woven.never(session, turn)

    def _look_at_size(self) -> None:
        assert self._woven is not None
        if self._woven.count > WOVEN:
            self._spill_events()

    def _merge(self) -> None:
        if self._woven is not None:
            self._woven.merge(self._events)

    def _spill_events(self) -> None:
        """Move whole row groups to their file."""
        self._merge()
        while len(self._events) >= self._events_full:
            self._event_rows.spill()
        if self._woven is not None:
            self._woven.begin = len(self._events) // len(EVENT_FIELDS)

    def step(self, t_s: float, dt_s: float, stage: str, *counts: int, sms: float = math.nan) -> None:
        """Log a step. `counts` are the remaining STEP_FIELDS, in order; `sms` is kept after `divide`."""
        self._steps.extend((t_s, dt_s, self._stages[stage], *counts))
        if self._shares:
            self._steps.append(sms)
        if len(self._steps) == self._steps_full:
            self._step_rows.spill()

    def __len__(self) -> int:
        """Number of events so far."""
        self._merge()
        return len(self._event_rows)

    def close(self) -> None:
        """End the log. Before this, a table that has gone to its file cannot be read."""
        self._merge()
        self._event_rows.close()
        self._step_rows.close()

    def events(self, start: int = 0) -> pa.Table:
        """Return columns t (s), kind, session, turn, stage and value, in the order of events, from one on."""
        self._merge()
        return self._whole(self._event_rows, start)

    def event_pieces(self) -> Iterator[pa.Table]:
        """Yield the same table, some rows at a time."""
        self._merge()
        return self._event_rows.pieces()

    def steps(self) -> pa.Table:
        """Return one row per engine step; columns as `STEP_FIELDS`, times in s, KV in blocks of 16 tokens; after
        `divide` `sms` too, missing where no share applies.

        `waiting` leaves out interaction sessions that wait for their user's next frame; `held` counts them.
        """
        return self._whole(self._step_rows)

    def files(self) -> dict[str, Path]:
        """Return the files of the tables `events` and `steps` that are in files, complete once the log is closed."""
        tables = {"events": self._event_rows, "steps": self._step_rows}
        return {name: rows.path for name, rows in tables.items() if rows.written and rows.path is not None}

    @staticmethod
    def _whole(rows: _Rows, start: int = 0) -> pa.Table:
        if rows.written:
            return pa.concat_tables(rows.pieces()).slice(start)
        return rows.table(start)
