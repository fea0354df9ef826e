"""Eviction by next use: the queue of free blocks in vLLM's KV cache manager, and its index (T-m)."""

import math
from contextlib import closing
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core import vllm_adapter as vllm
from engines.core.kv_manager import EvictionMode
from engines.core.vllm_adapter.free_queue import install
from engines.systems.liveserve import next_use
from engines.systems.liveserve.next_use import NextUseIndex, TailScan
from tests.engines.stage import check_pool, make_scheduler

SIZE = 16
POOL = 40


@cache
def kv_cache_manager():
    return make_scheduler(blocks=POOL + 1, prefix_caching=True).kv_cache_manager


class Stage:
    """A pool of 40 blocks, and sessions whose histories begin with the same `common` tokens."""

    def __init__(self, mode: EvictionMode = "on", index: Any = None, common: int = 0):
        self.manager = kv_cache_manager()
        self.pool = self.manager.block_pool
        assert self.pool.reset_prefix_cache()
        self.index = NextUseIndex() if index is None else index
        self.owners: dict[int, Any] = {}
        self.queue = install(self.pool, self.index, self.owners, mode)
        self.common = common
        self.histories: dict[int, list[int]] = {}
        self.running: dict[int, Any] = {}

    def turn(self, session: int, tokens: int) -> bool:
        """The session's turn adds `tokens` to its history and computes what is not cached, unless there are too few
        blocks."""
        history = self.histories.get(session, list(range(self.common)))
        prompt = history + [1000 * (session + 1) + len(history) + i for i in range(tokens)]
        request = vllm.make_request(f"{session}.{len(prompt)}", prompt, 1, 0.0, SIZE, session)
        blocks, hit, _ = self.manager.get_computed_blocks(request)
        if self.manager.allocate_slots(request, len(prompt) - hit, hit, blocks) is None:
            return False
        self.histories[session], self.running[session] = prompt, request
        return True

    def end(self, session):
        request = self.running.pop(session)
        for position, block_id in enumerate(self.manager.get_block_ids(request.request_id)[0]):
            self.owners.setdefault(block_id, {})[session] = position
        self.manager.free(request)

    def say(self, session, tokens):
        assert self.turn(session, tokens)
        self.end(session)

    def cached(self, session):
        """Leading blocks of the session's history that are on the GPU."""
        request = vllm.make_request("lookup", [*self.histories[session], 0], 1, 0.0, SIZE, session)
        return self.manager.get_computed_blocks(request)[1] // SIZE

    def close(self):
        for session in list(self.running):
            self.end(session)

    def check(self):
        free, _ = check_pool(self.pool)
        cached = {block_id for block_id in free if self.pool.blocks[block_id].block_hash is not None}
        assert self.queue.empty_blocks == len(free) - len(cached)
        assert len(self.index) == len(cached)


@pytest.mark.parametrize(
    ("mode", "kept", "counted"),
    [("off", (11, 15), {}), ("on", (15, 11), {}), ("log_only", (11, 15), {"log_victims": 4, "log_disagreements": 4})],
)
def test_the_session_that_comes_back_last_loses_blocks_and_lru_would_take_the_other(
    mode: EvictionMode, kept: tuple[int, int], counted: dict[str, int]
):
    """30 of 40 blocks are cached, 15 of each session; 14 new blocks evict 4. Session 1 was used first and is next."""
    stage = Stage(mode)
    for session, next_use_s in ((1, 3.0), (2, 60.0)):
        stage.say(session, 15 * SIZE)
        stage.index.key(session, next_use_s)
    stage.say(3, 14 * SIZE)
    assert (stage.cached(1), stage.cached(2)) == kept
    assert stage.queue.counters == counted
    stage.check()


def test_a_session_about_to_be_used_keeps_everything_until_nothing_else_is_left():
    """10 of 40 blocks are empty. 20 new blocks evict 10 of session 2; 8 more its last 5, and 3 in vLLM's order."""
    stage = Stage()
    for session in (1, 2):
        stage.say(session, 15 * SIZE)
    stage.index.key(2, 5.0)
    stage.turn(3, 20 * SIZE)
    assert (stage.cached(1), stage.cached(2)) == (15, 5)
    assert not stage.queue.counters
    stage.turn(4, 8 * SIZE)
    assert (stage.cached(1), stage.cached(2)) == (12, 0)
    assert stage.queue.counters == {"lru_fallback_allocs": 1, "lru_fallback_blocks": 3}
    stage.close()
    stage.check()


def test_an_empty_pool_raises_as_vllms_does():
    stage = Stage()
    taken = [stage.queue.popleft() for _ in range(POOL)]
    with pytest.raises(ValueError, match="No free blocks"):
        stage.queue.popleft()
    stage.queue.append_n(taken)
    stage.check()


SESSIONS = st.integers(0, 4)
EVENT = st.one_of(
    st.tuples(st.just("turn"), SESSIONS, st.integers(1, 12 * SIZE)),
    st.tuples(st.just("end"), SESSIONS, st.none()),
    st.tuples(st.just("key"), SESSIONS, st.none() | st.floats(0, 9)),
    st.tuples(st.just("evict"), st.integers(1, POOL), st.none()),
)
EVENTS = st.lists(EVENT, max_size=40)


@settings(max_examples=120)
@given(EVENTS, st.sampled_from(["off", "log_only", "on"]), st.sampled_from([NextUseIndex, TailScan]), st.booleans())
def test_no_block_is_lost_or_in_two_places(events, mode, index, shared):
    with closing(Stage(mode, index(), common=2 * SIZE if shared else 0)) as stage:
        for verb, what, value in events:
            if verb == "turn" and what not in stage.running:
                stage.turn(what, value)
            elif verb == "end" and what in stage.running:
                stage.end(what)
            elif verb == "key":
                stage.index.key(what, value)
            elif verb == "evict" and stage.pool.blocks[what].ref_cnt:
                stage.pool.evict_blocks({what})  # as a connector does with blocks whose load has failed
            stage.check()


@settings(max_examples=80)
@given(EVENTS, st.booleans())
def test_no_block_stays_behind_an_evicted_prefix(events, shared):
    """T10: a session with a next use keeps a prefix of its history, so every resident block can still be hit."""
    with closing(Stage(common=2 * SIZE if shared else 0)) as stage:
        for verb, what, value in events:
            if verb == "turn" and what not in stage.running and stage.turn(what, value):
                stage.end(what)
                stage.index.key(what, float(value))
            elif verb == "key" and value is not None:
                stage.index.key(what, value)
        resident = [owners for block, owners in stage.owners.items() if stage.pool.blocks[block].block_hash is not None]
        for session in stage.histories:
            owned = {positions[session] for positions in resident if session in positions}
            assert owned == set(range(stage.cached(session)))


class Oracle:
    """The rule by brute force: sort all idle blocks and take from the end."""

    def __init__(self):
        self.idle: dict[int, dict[int, int]] = {}
        self.needed: dict[int, float | None] = {}

    def add(self, block, owners):
        self.idle[block] = owners

    def discard(self, block):
        self.idle.pop(block, None)

    def key(self, session, next_use_s):
        self.needed[session] = next_use_s

    def __len__(self):
        return sum(bool(owners) for owners in self.idle.values())

    def candidates(self):
        """(next use, its owner) by block; not of blocks that must stay."""
        uses = {
            block: [(self.needed.get(session), session) for session in owners] for block, owners in self.idle.items()
        }
        return {block: min(own) for block, own in uses.items() if own and None not in [use for use, _ in own]}

    def pop(self, count):
        def order(candidate):
            block, (use, session) = candidate
            return (-use, -session, -self.idle[block][session], block)

        victims = [block for block, _ in sorted(self.candidates().items(), key=order)[:count]]
        for block in victims:
            del self.idle[block]
        return victims

    def later_than(self, moment):
        return sum(use > moment for use, _ in self.candidates().values())


NEXT_USES = st.sampled_from([0.0, 1.0, 1.5, 2.0, 7.0, math.inf])
OWNERS = st.dictionaries(SESSIONS, st.integers(0, 5), max_size=3)
INDEX_EVENT = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 30), OWNERS),
    st.tuples(st.just("discard"), st.integers(0, 30)),
    st.tuples(st.just("key"), SESSIONS, st.none() | NEXT_USES),
    st.tuples(st.just("pop"), st.integers(0, 4)),
    st.tuples(st.just("later_than"), NEXT_USES),
)


@settings(max_examples=300)
@given(st.lists(INDEX_EVENT, max_size=120))
def test_any_stream_of_events_gives_the_victims_of_brute_force(events):
    oracle, indexes = Oracle(), (NextUseIndex(), TailScan())
    for verb, *arguments in [*events, ("pop", 99)]:
        if verb == "add" and arguments[0] in oracle.idle:
            continue  # only a block that is not idle can become idle
        expected = getattr(oracle, verb)(*arguments)
        assert [getattr(index, verb)(*arguments) for index in indexes] == [expected] * 2
        assert [len(index) for index in indexes] == [len(oracle)] * 2


def test_the_index_does_not_grow_with_closed_sessions(monkeypatch):
    monkeypatch.setattr(next_use, "REMEMBERED", 10)
    index = NextUseIndex()
    index.add(0, {0: 0, 1: 0})
    index.key(1, 5.0)
    index.key(0, math.inf)
    for session in range(2, 300):
        index.add(session, {session: 0})
        index.key(session, math.inf)
        assert index.pop(1) == [session]
    assert len(index._sessions) <= 12 and len(index._order) <= 2 * 12 + next_use.SLACK + 1
    index.add(300, {0: 0})
    assert index.pop(2) == [300, 0], "an owner that was forgotten does not protect a block"
