"""Logs of a load generator besides its events: messages sent and when they were due, and failures."""

from array import array

import numpy as np
import pyarrow as pa

KINDS = ("audio", "commit", "ack", "interrupt", "session", "request", "goodbye", "text", "repeat")
"""A repeat is a request that was sent again, on another connection."""


class SendLog:
    """The quality of the load as this process sees it. Append-only rows, flat in memory: 32 bytes a send."""

    def __init__(self) -> None:
        self._rows = array("d")
        self._codes = {kind: float(code) for code, kind in enumerate(KINDS)}
        self._asked = 0

    def __len__(self) -> int:
        return len(self._rows) // 4

    def add(self, kind: str, session: int, due_s: float, sent_s: float) -> None:
        """Add a send: `kind` of `KINDS`; due time and time at which the send had returned, s on the loop's clock."""
        self._rows.extend((self._codes[kind], session, due_s, sent_s))

    def table(self, begin: int = 0) -> pa.Table:
        """Return kind, session, due_s and send_delay_s (sent − due, s) of each send from row `begin` on, in order."""
        rows = np.array(self._rows[4 * begin :]).reshape(-1, 4)
        kinds = pa.DictionaryArray.from_arrays(pa.array(rows[:, 0].astype(np.int32)), pa.array(KINDS, pa.string()))
        return pa.table(
            {
                "kind": kinds,
                "session": rows[:, 1].astype(np.int32),
                "due_s": rows[:, 2],
                "send_delay_s": rows[:, 3] - rows[:, 2],
            }
        )

    def recent(self) -> np.ndarray:
        """Return the send delays (s) since the last call."""
        rows = np.array(self._rows[4 * self._asked :]).reshape(-1, 4)
        self._asked += len(rows)
        return rows[:, 3] - rows[:, 2]


REASON = 120
"""Characters of a reason that are kept: servers may say anything. [chosen]"""


class FailureLog:
    """Failures between a client and its target, in a few words: closed 1006, error: overloaded, timeout.

    Append-only rows. A failure's turn is the one under way, or the one that would have been next.
    """

    def __init__(self) -> None:
        self._t_s, self._turns = array("d"), array("q")
        self._reasons: list[str] = []

    def __len__(self) -> int:
        return len(self._reasons)

    def add(self, t_s: float, session: int, turn: int, reason: str) -> None:
        """Add a failure. `reason` is a class of failures: a record counts equal ones."""
        self._t_s.append(t_s)
        self._turns.extend((session, turn))
        self._reasons.append(reason)

    def table(self, begin: int = 0) -> pa.Table:
        """Return columns t_s (s on the loop's clock), session, turn and reason, in order, from row `begin` on."""
        turns = np.array(self._turns[2 * begin :]).reshape(-1, 2).astype(np.int32)
        return pa.table(
            {
                "t_s": np.array(self._t_s[begin:]),
                "session": turns[:, 0],
                "turn": turns[:, 1],
                "reason": pa.array(self._reasons[begin:], pa.string()),
            }
        )
