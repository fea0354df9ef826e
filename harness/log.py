"""The event log of a run: the one source from which every metric, table and picture is computed.

Client kinds (``stage`` is ""): session_start; turn_start (the user begins); turn_end (at the *scheduled* end of the
user's turn; value = how much later it was sent, s); first_text and text (text tokens at the client; value = count);
audio (a packet; value = seconds of audio); reply_done; barge_in (value = seconds heard); barge_in_missed (the reply
ended before the drawn cut); playback_done (value = seconds played); turn_done; turn_failed; session_end.

Server kinds: arrive (request enters a stage's queue); start (first step that schedules it begins); token (value =
production tokens at the end of a step: text tokens at the thinker, codec frames at the talker); finish and abort
(value = production tokens in all, those in flight included); preempt; heard (at barge-in; value = production tokens of
the stage that the listener heard).

Run kinds: run_end. Times in seconds since the run began, on the run's clock.
"""

import math
from array import array

import numpy as np
import pyarrow as pa

STEP_FIELDS = (
    ("t_s", "d"),
    ("dt_s", "d"),
    ("stage", "i"),
    ("replica", "i"),
    ("requests", "i"),
    ("tokens", "i"),
    ("prefill_tokens", "i"),
    ("running", "i"),
    ("waiting", "i"),
    ("held", "i"),
    ("kv_used", "i"),
    ("kv_blocks", "i"),
    ("preempted", "i"),
)


class _Names:
    """Strings as small integers, in order of first use."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}

    def code(self, name: str) -> int:
        code = self.codes.get(name)
        if code is None:
            code = self.codes[name] = len(self.codes)
        return code

    def column(self, codes: array) -> pa.DictionaryArray:
        indices = pa.array(np.array(codes, dtype=np.int32))
        return pa.DictionaryArray.from_arrays(indices, pa.array(list(self.codes), type=pa.string()))


class EventLog:
    """Append-only columns; a million events take about 30 MB."""

    def __init__(self) -> None:
        self._t, self._value = array("d"), array("d")
        self._kind, self._stage = array("i"), array("i")
        self._session, self._turn = array("i"), array("i")
        self._kinds, self._stages = _Names(), _Names()
        self._steps = [array(code) for _, code in STEP_FIELDS]

    def event(
        self, t: float, kind: str, session: int, turn: int, stage: str = "", value: float = math.nan
    ) -> None:
        self._t.append(t)
        self._kind.append(self._kinds.code(kind))
        self._session.append(session)
        self._turn.append(turn)
        self._stage.append(self._stages.code(stage))
        self._value.append(value)

    def step(self, t_s: float, dt_s: float, stage: str, *counts: int) -> None:
        for column, value in zip(self._steps, (t_s, dt_s, self._stages.code(stage), *counts), strict=True):
            column.append(value)

    def events(self) -> pa.Table:
        """Columns t (s), kind, session, turn, stage, value; in the order in which things happened."""
        return pa.table(
            {
                "t": np.array(self._t),
                "kind": self._kinds.column(self._kind),
                "session": np.array(self._session, dtype=np.int32),
                "turn": np.array(self._turn, dtype=np.int16),
                "stage": self._stages.column(self._stage),
                "value": np.array(self._value),
            }
        )

    def steps(self) -> pa.Table:
        """One row per engine step; columns as ``STEP_FIELDS``, times in s, KV in blocks of 16 tokens."""
        columns = {}
        for (name, code), values in zip(STEP_FIELDS, self._steps, strict=True):
            if name == "stage":
                columns[name] = self._stages.column(values)
            else:
                columns[name] = np.array(values, dtype=np.float64 if code == "d" else np.int32)
        return pa.table(columns)
