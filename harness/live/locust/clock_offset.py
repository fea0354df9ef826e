"""Offset of another host's clock ahead of this one's, from questions and answers over the network.

Both clocks are CLOCK_MONOTONIC, each with an origin of its own, so nobody's time service can step them during a run.
An answer was given after its question was sent and before it was received; each exchange therefore bounds the offset on
both sides, whatever the network did, and the bounds of all exchanges hold together. (Marzullo, 1984; NTP, RFC 5905)
"""

from collections.abc import Sequence
from typing import NamedTuple


class Exchange(NamedTuple):
    """One question, s: sent and answer received by the local clock, answered by the remote one."""

    asked_s: float
    answered_s: float
    received_s: float


class Offset(NamedTuple):
    """`there - here`, s, known to `error_s` on either side."""

    offset_s: float
    error_s: float

    def here(self, there_s: float) -> float:
        """Return the instant by the local clock that is `there_s` by the remote one."""
        return there_s - self.offset_s


def offset_of(exchanges: Sequence[Exchange]) -> Offset:
    """Return the middle of the range that all exchanges allow; ValueError without one.

    Clocks that drift apart during the comparison can make the bounds contradict each other; then the shortest exchange
    alone counts.
    """
    if not exchanges:
        raise ValueError("no exchange, so nothing is known of the offset")
    low = max(one.answered_s - one.received_s for one in exchanges)
    high = min(one.answered_s - one.asked_s for one in exchanges)
    if low > high:
        shortest = min(exchanges, key=lambda one: one.received_s - one.asked_s)
        low, high = shortest.answered_s - shortest.received_s, shortest.answered_s - shortest.asked_s
    return Offset((low + high) / 2, (high - low) / 2)
