"""The recorder of an endless server: events are counted, and only replies under way are kept.

Counts and histograms are for `/metrics`; the ends of a reply's requests are for its session.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

TALKER = "talker"
"""The stage whose production tokens are counted besides the entry's text: codec frames. The vocoder makes none."""

TTFP_S = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
TOKEN_S = (0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0)
GAP_S = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
STEP_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""[chosen] upper bounds of histogram buckets, s."""


class Histogram:
    """Counts of observations up to each of `bounds`, and beyond the last."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def add(self, observation: float) -> None:
        self.counts[bisect_left(self.bounds, observation)] += 1
        self.sum += observation


class Pool(NamedTuple):
    """KV blocks of a replica after its latest step."""

    used: int
    blocks: int


@dataclass(slots=True)
class Reply:
    """The stages' work for one reply. `produced`: tokens by stage, including those in flight at an abort. `under_way`:
    requests that have neither finished nor been aborted."""

    produced: Counter[str] = field(default_factory=Counter)
    under_way: int = 0
    ended: Callable[[], None] | None = None


class ServerStats:
    """Implements `engines.core.recorder.Recorder` in bounded memory. `entry`: the stage that makes text. `stages`: the
    entry, and the stage that makes codec frames.

    `events`: their number by kind. `tokens`: produced, by stage; `wasted`: tokens of these in replies that were cut and
    never played. `turns`: replies by status. `ttfp_s`: commit to first audio sent, s. `gap_s`: silences of a spoken
    reply's player for want of audio, s; `longest_gap_s`: of each complete reply the longest, 0 without one. `ttft_s`,
    `token_s`: of replies in text, from the request to the first tokens sent, and from those to the next, s. `frame_s`:
    of interaction sessions, from a frame's complete audio to its sent answer, s. `step_s`: by stage. `pools`: by stage
    and replica. `audio_sent_s`: seconds of audio sent.
    """

    def __init__(self, entry: str) -> None:
        self.stages = tuple(dict.fromkeys((entry, TALKER)))
        self.events: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter(dict.fromkeys(self.stages, 0))
        self.wasted: Counter[str] = Counter(dict.fromkeys(self.stages, 0))
        self.turns: Counter[str] = Counter()
        self.audio_sent_s = 0.0
        self.ttfp_s = Histogram(TTFP_S)
        self.gap_s = Histogram(GAP_S)
        self.longest_gap_s = Histogram(GAP_S)
        self.ttft_s = Histogram(TTFP_S)
        self.token_s = Histogram(TOKEN_S)
        self.frame_s = Histogram(TTFP_S)
        self.step_s: dict[str, Histogram] = {}
        self.pools: dict[tuple[str, int], Pool] = {}
        self._replies: dict[tuple[int, int], Reply] = {}

    @property
    def replies(self) -> int:
        """Number of replies that are followed now."""
        return len(self._replies)

    def event(self, t: float, kind: str, session: int, turn: int, stage: str = "", value: float = float("nan")) -> None:
        del t
        self.events[kind] += 1
        if kind == "frame_out":
            self.tokens[stage] += int(value)
            return
        reply = self._replies.get((session, turn))
        if reply is None:
            return
        if kind == "arrive":
            reply.under_way += 1
        elif kind in ("finish", "abort"):
            if stage in self.stages:
                reply.produced[stage] += int(value)
            reply.under_way -= 1
            if not reply.under_way and reply.ended is not None:
                reply.ended()

    def event_of_each(self, t: float, kind: str, turns: np.ndarray, stage: str, value: float) -> None:
        for session, turn in turns.tolist():
            self.event(t, kind, int(session), int(turn), stage, value)

    def divide(self) -> None: ...

    def step(self, t_s: float, dt_s: float, stage: str, *counts: int, sms: float = math.nan) -> None:
        del t_s, sms
        histogram = self.step_s.get(stage)
        if histogram is None:
            histogram = self.step_s[stage] = Histogram(STEP_S)
        if counts[1]:  # a row without requests only tells that blocks became free
            histogram.add(dt_s)
        if counts[8]:
            self.pools[stage, counts[0]] = Pool(counts[7], counts[8])

    def follow(self, session: int, turn: int) -> None:
        """Follow a reply that is about to begin: keep its stages' events until it is `settled`."""
        self._replies[session, turn] = Reply()

    def when_ended(self, session: int, turn: int, then: Callable[[], None]) -> None:
        """Call `then` when no stage works on the reply any more, or at once if none does. The reply must be complete or
        cut, so that no stage begins with it later."""
        reply = self._replies[session, turn]
        if reply.under_way:
            reply.ended = then
        else:
            then()

    def settle(self, session: int, turn: int, status: str) -> Counter[str]:
        """Count a reply that no stage works on any more, and forget it; returns its production tokens by stage."""
        produced = self._replies.pop((session, turn)).produced
        self.turns[status] += 1
        self.tokens.update(produced)
        return produced

    def text_sent(self, asked_s: float, before_s: float | None, now: float) -> float:
        """Count text sent of a reply that was `asked_s`, for the first time if `before_s` is None; returns `now`, which
        is `before_s` of the next."""
        if before_s is None:
            self.ttft_s.add(now - asked_s)
        else:
            self.token_s.add(now - before_s)
        return now

    def cut(self, produced: Mapping[str, int], text: int, frames: int = 0) -> None:
        """Count an interrupted reply. `produced`: its tokens by stage; `text`, `frames`: tokens of the first stage and
        frames that had been played."""
        for stage, tokens in zip(self.stages, (text, frames), strict=False):
            self.wasted[stage] += produced.get(stage, 0) - tokens
