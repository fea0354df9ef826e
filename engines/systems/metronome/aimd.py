"""A cap on sessions from the latency of their frames: additive increase, multiplicative decrease (section 4.2).

The paper gives the form, the target (600 ms of 2 s) and its observations; every other constant is ours (`AimdParams`).
The controller has no access to the KV pool: it knows only latencies and the number of connected sessions.

**A ratchet.** Sessions last, so a lower cap disconnects nobody: it only rejects newcomers until enough sessions have
left. Once a target is touched the cap falls below the connected sessions and is raised again from there, `increase` a
tick.

**The meaning of latencies.** A frame's Step returns tokens made since the last one, within milliseconds however much
work a frame is; only a session's first frame waits for encoder, prefill and first token of the whole batch. With
`signal` "all" the newcomers' first frames are the load signal. With "steady" they are left out, and so are the frames
that return together with them: under wait scope batch those of the whole Step. The rest is flat until a frame's work no
longer fits its period, or the pool is full.
"""

from collections import Counter
from collections.abc import Sequence
from math import floor

import numpy as np

from engines.core.admission import FrameLatency
from engines.systems.metronome.metronome_params import CapParams

CAP_MIN = 1
"""[chosen] one session is always admitted, or no latency would ever be measured again."""


class Aimd:
    """The cap for frames of `frame_s` s (`engines.core.admission`), by `CapParams`.

    `target_s`: latency at which the cap falls. `counters`: ticks that touched the target, and ticks that raised the
    cap.
    """

    def __init__(self, params: CapParams, frame_s: float) -> None:
        self.cap = params.cap_start
        self.target_s = params.target_share * frame_s
        self.counters: Counter[str] = Counter(touches=0, raises=0)
        self._params = params
        self._hold = 0
        self._touched = False

    def admits(self, admitted: int) -> bool:
        return admitted < self.cap

    def tick(self, latencies: Sequence[FrameLatency], admitted: int) -> None:
        """Lower, raise or keep the cap after a Step.

        Touched: the cap becomes `beta` times the connected sessions, or times the cap if that is lower, and stays for
        `hold_ticks`: a change shows only later. Otherwise, also if no latency counts, a cap that binds is raised, by
        `slow_start` until the first touch and by `increase` ever after.
        """
        if self._hold:
            self._hold -= 1
            return
        params = self._params
        counted = self._counted(latencies)
        if counted and self._statistic(counted) >= self.target_s:
            self.cap = max(CAP_MIN, floor(params.beta * min(self.cap, admitted)))
            self._touched = True
            self._hold = params.hold_ticks
            self.counters["touches"] += 1
        elif admitted >= self.cap - 1:
            self.cap += params.increase if self._touched else params.slow_start
            self.counters["raises"] += 1

    def _counted(self, latencies: Sequence[FrameLatency]) -> list[float]:
        if self._params.signal == "all":
            return [frame.latency_s for frame in latencies]
        if self._params.wait_scope == "batch" and any(frame.first for frame in latencies):
            return []
        return [frame.latency_s for frame in latencies if not frame.first]

    def _statistic(self, latencies_s: list[float]) -> float:
        return max(latencies_s) if self._params.statistic == "max" else float(np.quantile(latencies_s, 0.95))
