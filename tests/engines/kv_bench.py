"""A KV manager over a store that only notes what it is asked."""

from collections import Counter
from typing import Any

from engines.systems.liveserve.kv import LiveServeKv
from engines.systems.liveserve.liveserve_params import Params
from engines.turns.monitor import Phase, SessionView

TIMEOUT_S = 2.0


class Store:
    """A pool of 1000 blocks, of which `empty_blocks` are empty; the host's copy engine moves 128 blocks a second."""

    block_bytes = 2**20
    bandwidth = 2.0**27
    allocatable_blocks = 1000

    def __init__(self, empty: int = 1000):
        self.empty_blocks = empty
        self.host: dict[int, int] = {}
        self.loading: dict[int, int] = {}
        self.cancelled: list[int] = []
        self.queue_s = 0.0
        self.mode = ""

    def evict_by(self, index, mode):
        self.index, self.mode = index, mode

    def missing(self, session):
        return self.host.get(session, 0)

    def load(self, session, blocks):
        assert session not in self.loading and 0 < blocks <= self.host[session]
        self.loading[session] = blocks
        return True

    def cancel(self, session):
        del self.loading[session]
        self.cancelled.append(session)

    def queued_s(self):
        return self.queue_s


class Bench:
    """A manager that counts on 64 blocks/s, half the copy engine's bandwidth, without margin by default."""

    def __init__(self, empty: int = 1000, **params):
        defaults = {"preload_margin_s": 0.0, "preload_piece_blocks": 16}
        self.store, self.kv = Store(empty), LiveServeKv(Params(**{**defaults, **params}))
        store: Any = self.store
        self.kv.attach(store)

    def speaks(self, session: int, missing: int, now: float, length_s: float = 4.0):
        """The user begins a turn of `length_s`, as this session's turns always are."""
        view = SessionView(session, 0.3, phase=Phase.USER_SPEAKING, speech_start_s=now, utterance_s=length_s)
        self.store.host[session] = missing
        self.kv.changed(view, now)
        self.kv.expect_turn(session, now)
        self.kv.act(now, False)
        return view

    def arrives(self, session: int, now: float):
        """The piece under way arrives."""
        blocks = self.store.loading.pop(session)
        self.store.host[session] -= blocks
        self.kv.loaded(session, blocks, now)
        self.kv.act(now, False)

    @property
    def counters(self):
        return Counter({name: n for name, n in self.kv.counters.items() if n})


def listener(**fields) -> SessionView:
    view = SessionView(1, 0.3, **fields)
    view.workload.reply_gap.add(2.0)
    view.workload.reply_audio.add(12.0)
    view.workload.utterance.add(1.5)
    return view
