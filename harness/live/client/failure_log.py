"""What went wrong between a live client and its target, in a few words: closed 1006, error: overloaded, timeout."""

from array import array
from collections import Counter

import numpy as np
import pyarrow as pa


class FailureLog:
    """Append-only rows. A failure's turn is the one under way, or the one that would have been next."""

    def __init__(self) -> None:
        self._t_s, self._turns = array("d"), array("q")
        self._reasons: list[str] = []

    def __len__(self) -> int:
        return len(self._reasons)

    def add(self, t_s: float, session: int, turn: int, reason: str) -> None:
        """`reason` is a class of failures: a record counts equal ones."""
        self._t_s.append(t_s)
        self._turns.extend((session, turn))
        self._reasons.append(reason)

    @property
    def counts(self) -> Counter[str]:
        """How often each reason."""
        return Counter(self._reasons)

    def table(self, begin: int = 0) -> pa.Table:
        """Columns t_s (s on the loop's clock), session, turn and reason, in order, from row `begin` on."""
        turns = np.array(self._turns[2 * begin :]).reshape(-1, 2).astype(np.int32)
        return pa.table(
            {
                "t_s": np.array(self._t_s[begin:]),
                "session": turns[:, 0],
                "turn": turns[:, 1],
                "reason": pa.array(self._reasons[begin:], pa.string()),
            }
        )
