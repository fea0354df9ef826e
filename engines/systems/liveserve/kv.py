"""LiveServe's KV manager of one replica, a thinker or a talker that keeps KV: eviction of idle KV, and early loads.

Paper section 5. A session whose user speaks will be used soon: its KV on the GPU is protected until its turn takes its
first step. Its KV on the host is loaded in the background if the remaining time hides that and the blocks can be had
from sessions needed later. The turn loads the KV of a rejected, abandoned or late preload itself: only latency is at
stake.
"""

import math
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from engines.core.kv_manager import EvictionIndex, KvStore
from engines.systems.liveserve import estimate
from engines.systems.liveserve.liveserve_params import KvParams
from engines.systems.liveserve.next_use import NextUseIndex, TailScan
from engines.turns import monitor

POLL_S = 0.020
"""[chosen] a preload that waits for blocks looks again after this time."""

ROUTE_WEIGHT = 0.3
"""[chosen] weight of the newest observation of the time from the end of a turn to its arrival at this stage."""


class Phase(StrEnum):
    """The phase of a preload, which ends as exactly one of those from HIT on: NEEDLESS when nothing remained to load,
    FALSE when the user took no turn."""

    QUEUED = "queued"
    LOADING = "loading"
    READY = "ready"
    HIT = "hit"
    LATE = "late"
    EXPIRED = "expired"
    CANCEL = "cancel"
    FALSE = "false"
    SKIP_TIME = "skip_time"
    SKIP_SPACE = "skip_space"
    SKIP_CAP = "skip_cap"
    NEEDLESS = "needless"


@dataclass(slots=True, eq=False)
class Preload:
    """One session's history on its way back. `due_s`: when its turn is expected at this stage.

    `blocks`: reserved for it, 0 until it is admitted; `loaded`: blocks of these on the GPU; `under_way`: a piece is on
    its way. `give_up_s`: the end of its wait; `refused`: the reason why it waits. `ready_s`: when it was complete.
    """

    session: int
    due_s: float
    phase: Phase = Phase.QUEUED
    blocks: int = 0
    loaded: int = 0
    under_way: bool = False
    give_up_s: float | None = None
    refused: Phase = Phase.SKIP_SPACE
    ready_s: float = 0.0


class LiveServeKv:
    """LiveServe's `engines.core.kv_manager.KvManager`.

    `counters`: `preload_issued` = hit + late + expired + cancel + false + preloads under way; late ones with some
    blocks loaded are `preload_partial`; `preload_false_blocks` were loaded for a turn that was none.
    `preload_skip_time`, `_space`, `_cap`: rejected; `preload_wait`: had to wait before it was admitted or rejected;
    `preload_hold`: looks at which urgent requests went before. `fallback_lru`: turns that started without a known next
    use of the session, so that its idle blocks are left to LRU until one is known; `fallback_playback`: estimates
    without playback reports.
    """

    def __init__(self, params: KvParams) -> None:
        self.params = params
        self.counters: Counter[str] = Counter()
        self.wake_s: float | None = None
        self.index: EvictionIndex = NextUseIndex() if params.eviction_index == "heap" else TailScan()
        self.preloads: dict[int, Preload] = {}
        self._store: KvStore
        self._views: dict[int, monitor.SessionView] = {}
        self._protected: set[int] = set()
        self._expected: set[int] = set()  # protected sessions whose turn has yet to come
        self._route_s = 0.0

    @property
    def reserved(self) -> int:
        """Return the blocks that early loads take up or will; the cap limits them."""
        return sum(preload.blocks for preload in self.preloads.values())

    def attach(self, store: KvStore) -> None:
        self._store = store
        store.evict_by(self.index, self.params.eviction)

    def expect_turn(self, session: int, now: float) -> None:
        """Protect the session's KV, as its user speaks; the next `act` decides on loads."""
        if session not in self._protected:
            self._expected.add(session)
        self._protect(session)
        if self.params.preload and session not in self.preloads and self._store.missing(session):
            self.preloads[session] = Preload(session, self._due_s(session, now))
            self.wake_s = now

    def cancel_expected_turn(self, session: int, now: float) -> None:
        """Take back a false start: its loads are as idle as the session's other blocks."""
        preload = self.preloads.get(session)
        if preload is not None:
            self.counters["preload_false_blocks"] += preload.loaded
            self._end(preload, Phase.FALSE if preload.blocks else preload.refused)
        if session in self._expected:
            self._expected.discard(session)
            self._protected.discard(session)

    def turn_arrived(self, session: int, now: float) -> None:
        """Note the turn's arrival: a complete preload is a hit; the turn itself loads the rest of any other."""
        view = self._views.get(session)
        if view is not None and view.speech_end_s is not None:
            self._route_s += ROUTE_WEIGHT * (max(0.0, now - view.speech_end_s) - self._route_s)
        self._protect(session)
        self._expected.discard(session)
        preload = self.preloads.get(session)
        if preload is None:
            return
        if preload.phase is Phase.QUEUED:
            self._end(preload, preload.refused)
        elif preload.phase is Phase.READY:
            self._end(preload, Phase.HIT)
        else:
            self.counters["preload_partial"] += preload.loaded > 0
            self._end(preload, Phase.LATE)

    def turn_started(self, session: int, now: float) -> None:
        self._protected.discard(session)
        view = self._views.get(session)
        if view is None or not self._key(view, now):
            self.counters["fallback_lru"] += 1

    def loaded(self, session: int, blocks: int, now: float) -> None:
        """Note the arrival of a piece. After an empty one the rest would not come either."""
        preload = self.preloads.get(session)
        if preload is None or not preload.under_way:
            return
        preload.under_way = False
        preload.loaded += blocks
        self.counters["preload_blocks"] += blocks
        if preload.loaded >= preload.blocks or not self._store.missing(session):
            self._ready(preload, now)
        elif not blocks:
            self._give_up(preload, Phase.CANCEL, now)
        self.wake_s = now

    def changed(self, view: monitor.SessionView, now: float) -> None:
        """Update the session's key. Before first audio it is set as the turn starts; until then the next use is that
        turn."""
        self._views[view.session] = view
        if view.session not in self._protected and view.phase is not monitor.Phase.AWAIT_FIRST_AUDIO:
            self._key(view, now)

    def forget(self, session: int) -> None:
        preload = self.preloads.get(session)
        if preload is not None:
            self._end(preload, preload.refused if preload.phase is Phase.QUEUED else Phase.CANCEL)
        self._protected.discard(session)
        self._expected.discard(session)
        self._views.pop(session, None)
        self.index.key(session, math.inf)

    def act(self, now: float, urgent_short: bool) -> None:
        """Admit waiting preloads, load the next piece, and expire preloads whose turn did not come.

        One piece is under way at a time, of the turn expected first, so a foreground load waits for one piece at most.
        While urgent requests are short of blocks no load begins, and the newest is given up.
        """
        if not self.preloads:
            self.wake_s = None
            return
        if urgent_short:
            loading = [p for p in self.preloads.values() if p.phase is Phase.LOADING]
            if loading:
                self._give_up(loading[-1], Phase.CANCEL, now)
        for preload in list(self.preloads.values()):
            if preload.phase is Phase.QUEUED:
                self._admit(preload, now, urgent_short)
            elif preload.phase is Phase.READY and now >= preload.ready_s + self.params.preload_ttl_s:
                self._give_up(preload, Phase.EXPIRED, now)
        loading = sorted(
            (p for p in self.preloads.values() if p.phase is Phase.LOADING), key=lambda preload: preload.due_s
        )
        if not urgent_short and not any(preload.under_way for preload in loading):
            self._load_next(loading, now)
        self.wake_s = min((self._look_s(p, now) for p in self.preloads.values()), default=None)

    def _admit(self, preload: Preload, now: float, held: bool) -> None:
        """Admit a preload by section 5.2: time, blocks, cap. Time only shrinks; for the others it may wait a little."""
        missing = self._store.missing(preload.session)
        if not missing:
            self._end(preload, Phase.NEEDLESS)
            return
        transfer_s = self._transfer_s(missing)
        queued_s = self._store.queued_s() + self._transfer_s(self._unloaded())
        left_s = max(0.0, preload.due_s - now)
        refused = None
        if transfer_s + queued_s > left_s - self.params.preload_margin_s:
            refused = Phase.SKIP_TIME
        elif held or not self._obtainable(preload.due_s, missing):
            refused = Phase.SKIP_SPACE
        elif self.reserved + missing > self.params.protect_cap * self._store.allocatable_blocks:
            refused = Phase.SKIP_CAP
        if refused is None:
            preload.phase, preload.blocks = Phase.LOADING, missing
            self.counters["preload_issued"] += 1
            # The newest load is the last admitted one, whichever user began to speak first.
            self.preloads[preload.session] = self.preloads.pop(preload.session)
            return
        self.counters["preload_hold"] += held
        if preload.give_up_s is None:
            preload.refused = refused
            wait_s = min(self.params.preload_wait_s, left_s - transfer_s)
            preload.give_up_s = now + (wait_s if refused is not Phase.SKIP_TIME else 0.0)
            self.counters["preload_wait"] += preload.give_up_s > now
        if refused is not Phase.SKIP_TIME:
            preload.refused = refused
        if refused is Phase.SKIP_TIME or now >= preload.give_up_s:
            self._end(preload, preload.refused)

    def _load_next(self, loading: list[Preload], now: float) -> None:
        """Begin the first piece whose blocks can still be had from sessions needed later."""
        for preload in loading:
            session, piece = preload.session, self.params.preload_piece_blocks
            blocks = min(piece, preload.blocks - preload.loaded, self._store.missing(session))
            if not blocks:
                self._ready(preload, now)
            elif self._obtainable(preload.due_s, blocks) and self._store.load(session, blocks):
                preload.under_way = True
                return

    def _ready(self, preload: Preload, now: float) -> None:
        preload.phase, preload.ready_s, preload.blocks = Phase.READY, now, preload.loaded

    def _obtainable(self, due_s: float, blocks: int) -> bool:
        """Return True if `blocks` blocks are empty or belong to sessions needed strictly later (otherwise sessions
        would take turns)."""
        empty = self._store.empty_blocks
        return empty >= blocks or empty + self.index.later_than(due_s) >= blocks

    def _transfer_s(self, blocks: int) -> float:
        bandwidth = self._store.bandwidth * self.params.preload_bandwidth_share
        return blocks * self._store.block_bytes / bandwidth

    def _unloaded(self) -> int:
        """Return the blocks of admitted preloads that the copy engine has yet to get."""
        piece = self.params.preload_piece_blocks
        return sum(
            max(0, p.blocks - p.loaded - (piece if p.under_way else 0))
            for p in self.preloads.values()
            if p.phase is Phase.LOADING
        )

    def _due_s(self, session: int, now: float) -> float:
        """Return the expected arrival of a speaking user's turn: the end of the utterance, encoding and routing."""
        view = self._views.get(session)
        speech_end_s = now + estimate.UTTERANCE_S if view is None else estimate.speech_end_s(view, now)
        return speech_end_s + self._route_s

    def _look_s(self, preload: Preload, now: float) -> float:
        """Return the time of the next look at a preload if nothing happens."""
        if preload.phase is Phase.READY:
            return preload.ready_s + self.params.preload_ttl_s
        if preload.phase is Phase.QUEUED and preload.give_up_s is not None:
            return min(now + POLL_S, preload.give_up_s)
        return now + POLL_S

    def _protect(self, session: int) -> None:
        self._protected.add(session)
        self.index.key(session, None)

    def _give_up(self, preload: Preload, outcome: Phase, now: float) -> None:
        """End a preload whose turn has not come: its blocks can be evicted again, though a session due soon owns
        them."""
        self._end(preload, outcome)
        self._protected.discard(preload.session)
        self.index.key(preload.session, max(now, preload.due_s))

    def _end(self, preload: Preload, outcome: Phase) -> None:
        if preload.under_way:
            self._store.cancel(preload.session)
        preload.phase = outcome
        del self.preloads[preload.session]
        self.counters[f"preload_{outcome}"] += 1

    def _key(self, view: monitor.SessionView, now: float) -> bool:
        """Give the index the session's next use; False if it is unknown."""
        timeout_s = self.params.telemetry_timeout_s
        next_use_s = estimate.next_use_s(view, now, timeout_s)
        self.index.key(view.session, next_use_s)
        self.counters["fallback_playback"] += not view.telemetry_ok(now, timeout_s)
        return next_use_s is not None


def manager(stage: str, params: KvParams) -> LiveServeKv | None:
    """Make the manager of a stage that keeps KV between turns, for next-use eviction and preload; None, which means
    LRU, without either."""
    return None if params.eviction == "off" and not params.preload else LiveServeKv(params)
