"""Admission of interaction sessions by the latency of frames, the only thing that it sees.

Metronome section 4.2: the loop works only if latency tells the load, so an admission may not read the pool.
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
    """A cap on sessions. Without one everybody is let in.

    `cap`: sessions that may be on line now; lowering it sends nobody away.
    """

    counters: Counter[str]
    cap: int

    def admits(self, admitted: int) -> bool:
        """Whether one more may join `admitted` sessions; who may not is rejected for good."""
        ...

    def tick(self, latencies: Sequence[FrameLatency], admitted: int) -> None:
        """A Step has ended: what it took for each of its sessions, and how many are on line."""
        ...
