"""What was sent, when it was due and when it was: the quality of the load as far as this process can see it."""

from array import array

import numpy as np
import pyarrow as pa

KINDS = ("audio", "commit", "ack", "interrupt", "session", "request", "goodbye", "text")


class SendLog:
    """Append-only rows, flat in memory: 32 bytes a send."""

    def __init__(self) -> None:
        self._rows = array("d")
        self._codes = {kind: float(code) for code, kind in enumerate(KINDS)}
        self._asked = 0

    def __len__(self) -> int:
        return len(self._rows) // 4

    def add(self, kind: str, session: int, due_s: float, sent_s: float) -> None:
        """`kind` of `KINDS`; times in s on the loop's clock: when it was to go, and when the send had returned."""
        self._rows.extend((self._codes[kind], session, due_s, sent_s))

    def table(self, begin: int = 0) -> pa.Table:
        """Columns kind, session, due_s and slip_s (sent − due, s), in the order of sending, from row `begin` on."""
        rows = np.array(self._rows[4 * begin :]).reshape(-1, 4)
        kinds = pa.DictionaryArray.from_arrays(
            pa.array(rows[:, 0].astype(np.int32)), pa.array(KINDS, pa.string())
        )
        return pa.table(
            {
                "kind": kinds,
                "session": rows[:, 1].astype(np.int32),
                "due_s": rows[:, 2],
                "slip_s": rows[:, 3] - rows[:, 2],
            }
        )

    def recent(self) -> np.ndarray:
        """Slips (s) since this was last asked."""
        rows = np.array(self._rows[4 * self._asked :]).reshape(-1, 4)
        self._asked += len(rows)
        return rows[:, 3] - rows[:, 2]
