"""Admission of interaction sessions by the latency of frames.

Metronome section 4.2: the loop works only if latency shows the load, so an admission may not read the pool.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol


class FrameLatency(NamedTuple):
    """One session's part of a Step. `latency_s`: from its dispatch to its return; `first`: of its first frame."""

    session: int
    latency_s: float
    first: bool


class Admission(Protocol):
    """A cap on sessions; the base class sets none.

    `cap`: sessions that may be connected now; lowering it disconnects nobody.
    """

    counters: Counter[str]
    cap: int

    def admits(self, admitted: int) -> bool:
        """Return True to admit one more session to `admitted`; a session that is not admitted is rejected for good."""
        ...

    def tick(self, latencies: Sequence[FrameLatency], admitted: int) -> None:
        """Take in a Step's end: its latency for each of its sessions, and the number of admitted sessions."""
