"""The event log of a run: the one source from which every metric, table and picture is computed.

Client kinds (`stage` is ""): connected (live; value = seconds that its connection took to set up, the greetings
included); session_start; turn_start (the user begins); turn_end (at the *scheduled* end of the user's turn, or where
the line was lost before; value = how much later it was sent, s; missing for one that was not); first_text and text
(text tokens at the client; value = count); audio (a packet; value = seconds of audio); reply_done; barge_in (value =
seconds heard); barge_in_missed (the reply ended before the drawn cut); late_audio (live; a packet of a reply that the
user has already cut; value = seconds of audio); playback_done (value = seconds played); shed (the server did not let
the session in); turn_done; turn_failed; turn_aborted (by the pool it is of, when the last session of none has ended);
pool_dry (of its last session: a seat of the pool stays empty, as the trace holds no more; value = sessions that are
under way); session_end.

Client kinds of interaction sessions, whose turns are frames: connected; session_start; admitted or shed; turn_end (at
the *scheduled* time at which the frame's audio is complete; value = how much later it was sent, s); frame (what a Step
returned is at the client; turn = newest frame fed in that Step, value = text tokens, 0 for an empty frame);
session_failed; session_end.

Server kinds: arrive (request enters a stage's queue); start (first step that schedules it begins); token (value =
production tokens at the end of a step: text tokens at the thinker, codec frames at the talker); finish and abort
(value = production tokens in all, those in flight included); computed (with the abort of a pool's request; value =
tokens of its prompt that had KV); preempt; heard (at barge-in; value = production tokens of the stage that the listener
heard); load_start and load_end (a request that has yet to start waits for KV from the host;
value of the end = blocks loaded for it, 0 if it waited for somebody else's load); preloaded (at its start; value =
blocks that it found because they were loaded before it came).

Server kinds of interaction sessions, instead of token, finish and abort. Of the tick (session -1, turn = its number):
tick (its Step is dispatched; value = sessions due); tick_end (it returns; value = 1 if the cap on its wait cut it off);
tick_skipped (the Step before had not returned); cap (at the end of a Step; value = most sessions that admission lets
in). Of a session: fed (at the dispatch of the Step; value = tokens fed with this frame); frame_out (at the return; turn
= newest frame fed, value = text tokens collected); recycle (its request is replaced; value = audio tokens fed again);
max_len (it reached max_model_len). Of the engine (session -1, turn -1): alloc_fail (blocks were refused; value = 0 to a
request that waits for admission, 1 to a running one; at most one of each value a step).

Of a live run the client logs what the server's messages tell: finish, abort and heard from the usage of a response; of
frames, fed when a frame's audio had been sent and frame_out when its answer was read. Where a server does not tell what
was heard of a cut reply, it is the share of the received audio that was played, of the tokens.

Run kinds: run_end. Times in seconds since the run began, on the run's clock.
"""

import math
from array import array

import numpy as np
import pyarrow as pa

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

FLOATS = {"t", "value", "t_s", "dt_s"}


class _Names(dict[str, int]):
    """Strings as small integers, in order of first use."""

    def __missing__(self, name: str) -> int:
        code = self[name] = len(self)
        return code

    def column(self, codes: np.ndarray) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(
            pa.array(codes.astype(np.int32)), pa.array(list(self), pa.string())
        )


class EventLog:
    """Append-only rows, flat in memory: 48 bytes an event, 104 bytes a step."""

    def __init__(self) -> None:
        self._events, self._steps = array("d"), array("d")
        self._kinds, self._stages = _Names(), _Names()

    def event(
        self, t: float, kind: str, session: int, turn: int, stage: str = "", value: float = math.nan
    ) -> None:
        self._events.extend((t, self._kinds[kind], session, turn, self._stages[stage], value))

    def step(self, t_s: float, dt_s: float, stage: str, *counts: int) -> None:
        """`counts` are the remaining STEP_FIELDS, in order."""
        self._steps.extend((t_s, dt_s, self._stages[stage], *counts))

    def __len__(self) -> int:
        """Events so far."""
        return len(self._events) // len(EVENT_FIELDS)

    def events(self, start: int = 0) -> pa.Table:
        """Columns t (s), kind, session, turn, stage, value; in the order in which things happened, from one on."""
        return self._table(self._events[start * len(EVENT_FIELDS) :] if start else self._events, EVENT_FIELDS)

    def steps(self) -> pa.Table:
        """One row per engine step; columns as `STEP_FIELDS`, times in s, KV in blocks of 16 tokens.

        `waiting` leaves out interaction sessions that wait for their user's next frame; `held` counts them.
        """
        return self._table(self._steps, STEP_FIELDS)

    def _table(self, flat: array, fields: tuple[str, ...]) -> pa.Table:
        rows = np.array(flat).reshape(-1, len(fields))
        names = {"kind": self._kinds, "stage": self._stages}
        columns = {}
        for i, field in enumerate(fields):
            if field in names:
                columns[field] = names[field].column(rows[:, i])
            else:
                columns[field] = rows[:, i] if field in FLOATS else rows[:, i].astype(np.int32)
        return pa.table(columns)
