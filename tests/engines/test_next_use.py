"""The eviction index against brute force: the same victims on any stream of events (T-m), from heap and from scan."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.systems.liveserve import next_use
from engines.systems.liveserve.next_use import NextUseIndex, TailScan

INDEXES = [NextUseIndex, TailScan]


class Oracle:
    """The rule said once more, as slowly as can be: sort all idle blocks and take from the end."""

    def __init__(self):
        self.idle: dict[int, dict[int, int]] = {}
        self.needed: dict[int, float | None] = {}

    def candidates(self):
        """(next use, its owner) by block; not of blocks that must stay."""
        found = {}
        for block, owners in self.idle.items():
            uses = [(self.needed.get(session), session) for session in owners]
            if uses and all(use is not None for use, _ in uses):
                found[block] = sorted(uses)[0]
        return found

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


SESSIONS = st.integers(0, 4)
TIMES = st.sampled_from([0.0, 1.0, 1.5, 2.0, 7.0, math.inf])
OWNERS = st.dictionaries(SESSIONS, st.integers(0, 5), max_size=3)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 30), OWNERS),
        st.tuples(st.just("discard"), st.integers(0, 30), st.none()),
        st.tuples(st.just("key"), SESSIONS, st.one_of(st.none(), TIMES)),
        st.tuples(st.just("pop"), st.integers(0, 4), st.none()),
        st.tuples(st.just("later_than"), TIMES, st.none()),
    ),
    max_size=120,
)


@settings(max_examples=300)
@given(EVENTS)
def test_any_stream_of_events_gives_the_victims_of_brute_force(events):
    oracle, indexes = Oracle(), [make() for make in INDEXES]
    for verb, what, value in events:
        if verb == "add":
            if what in oracle.idle:
                continue  # only a block that is not idle can become idle
            oracle.idle[what] = value
            for index in indexes:
                index.add(what, value)
        elif verb == "discard":
            oracle.idle.pop(what, None)
            for index in indexes:
                index.discard(what)
        elif verb == "key":
            oracle.needed[what] = value
            for index in indexes:
                index.key(what, value)
        else:
            expected = getattr(oracle, verb)(what)
            assert [getattr(index, verb)(what) for index in indexes] == [expected] * len(indexes)
        for index in indexes:
            assert len(index) == sum(bool(owners) for owners in oracle.idle.values())
    expected = oracle.pop(99)
    assert [index.pop(99) for index in indexes] == [expected] * len(indexes)


@pytest.mark.parametrize("make", INDEXES)
def test_victims_come_from_the_latest_session_and_from_its_end(make):
    index = make()
    for position in range(3):
        index.add(10 + position, {1: position})
        index.add(20 + position, {2: position})
    index.key(1, 5.0)
    index.key(2, 50.0)
    assert index.pop(2) == [22, 21]
    assert index.pop(2) == [20, 12]
    assert index.later_than(4.9) == 2
    assert index.later_than(5.0) == 0, "strictly later"


@pytest.mark.parametrize("make", INDEXES)
def test_a_shared_block_stays_for_the_owner_that_needs_it_first(make):
    index = make()
    index.add(1, {1: 0, 2: 0})
    index.add(2, {2: 1})
    index.key(1, 5.0)
    index.key(2, 50.0)
    assert index.pop(1) == [2]
    assert index.later_than(10.0) == 0
    index.key(1, None)
    assert index.pop(1) == [], "one owner is protected"
    index.key(1, math.inf)
    assert index.later_than(10.0) == 1, "the owner that closed needs it no more, the other one later"
    assert index.pop(1) == [1]


@pytest.mark.parametrize("make", INDEXES)
def test_protected_and_unknown_sessions_lose_nothing_and_closed_ones_go_first(make):
    index = make()
    for session in range(4):
        index.add(session, {session: 0})
    index.key(1, 1e9)
    index.key(2, None)
    index.key(3, math.inf)
    assert index.pop(9) == [3, 1], "session 0 has no next use, session 2 is protected"
    index.key(2, 0.0)
    assert index.pop(9) == [2]


@given(turns=st.integers(1, 60))
def test_memory_does_not_grow_with_the_turns_of_a_session(turns):
    index = NextUseIndex()
    for turn in range(turns):
        index.key(1, float(turn))
        for block in range(20):
            index.discard(block)
            index.add(block, {1: block})
    assert len(index._sessions[1].stack) <= 2 * 20 + 64
    assert len(index._order) <= 2 + 64
    assert index.pop(20) == list(range(19, -1, -1))


def test_memory_does_not_grow_with_the_sessions_that_have_closed(monkeypatch):
    monkeypatch.setattr(next_use, "REMEMBERED", 10)
    index = NextUseIndex()
    index.add(0, {0: 0, 1: 0})
    index.key(1, 5.0)
    index.key(0, math.inf)
    for session in range(2, 300):
        index.key(session, float(session))
        index.add(session, {session: 0})
        index.key(session, math.inf)
        assert index.pop(1) == [session]
    assert len(index._sessions) <= 12 and len(index._order) <= 2 * 12 + next_use.SLACK + 1
    index.add(300, {0: 0})
    assert index.pop(2) == [300, 0], "an owner that was forgotten does not protect a block"
