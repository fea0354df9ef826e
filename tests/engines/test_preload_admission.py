"""Which KV LiveServe loads ahead of a turn, when, and what becomes of it (paper section 5.2)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.speaking.monitor import Phase
from tests.engines.kv_bench import Bench, Store

FINAL = ("hit", "late", "expired", "cancel", "false")


REFUSED = ("skip_time", "skip_space", "skip_cap", "needless")


def test_a_preload_is_let_in_at_equality_and_not_one_block_later():
    for missing, outcome in ((64, "issued"), (65, "skip_time")):
        bench = Bench()
        bench.speaks(1, missing, 10.0, length_s=1.0)  # 64 blocks/s for one second
        assert bench.counters == {f"preload_{outcome}": 1}
    bench = Bench(preload_margin_s=0.25)
    bench.speaks(1, 48, 10.0, length_s=1.0)
    assert bench.counters == {"preload_issued": 1}
    bench = Bench()
    bench.store.queue_s = 0.25
    bench.speaks(1, 49, 10.0, length_s=1.0)
    assert bench.counters == {"preload_skip_time": 1}, "the copy engine is busy for a quarter of it"


def test_what_was_admitted_before_counts_as_queued():
    bench = Bench()
    bench.speaks(1, 48, 10.0, length_s=1.0)  # 16 with the engine, 32 to come: half a second
    bench.speaks(2, 33, 10.0, length_s=1.0)
    bench.speaks(3, 32, 10.0, length_s=1.0)
    assert bench.counters == {"preload_issued": 2, "preload_skip_time": 1}
    assert bench.kv.preloads.keys() == {1, 3}


def test_time_shrinks_while_a_preload_waits_for_blocks():
    bench = Bench(empty=0)
    bench.speaks(1, 48, 10.0, length_s=1.0)
    assert bench.counters == {"preload_wait": 1}
    assert bench.kv.wake_s == pytest.approx(10.02), "looked at every 20 ms"
    bench.kv.act(10.2, False)
    assert bench.kv.wake_s == pytest.approx(10.22)
    bench.kv.act(10.24, False)
    assert bench.kv.wake_s == 10.25, "when 48 blocks would be late"
    bench.kv.act(10.25, False)
    assert bench.counters == {"preload_wait": 1, "preload_skip_space": 1}
    assert bench.kv.wake_s is None


def test_a_preload_waits_half_a_second_at_most_and_goes_on_when_blocks_come():
    for blocks_come_s, outcome in ((0.4, "issued"), (0.6, "skip_space")):
        bench = Bench(empty=0)
        bench.speaks(1, 48, 0.0, length_s=4.0)
        for step in range(1, 40):
            now = step * 0.02
            if now >= blocks_come_s:
                bench.store.empty_blocks = 100
            bench.kv.act(now, False)
        assert bench.counters == {"preload_wait": 1, f"preload_{outcome}": 1}


def test_blocks_come_only_from_sessions_needed_strictly_later():
    bench = Bench(empty=10)
    for block in range(20):
        bench.store.index.add(block, {9: block})
    for next_use_s, issued in ((4.0, False), (4.001, True)):
        bench.store.index.key(9, next_use_s)  # the turn is due at 4.0
        bench.kv.preloads.clear()
        bench.speaks(1, 30, 0.0, length_s=4.0)
        assert bool(bench.counters["preload_issued"]) is issued
    bench.store.index.key(9, 3.0)
    bench.store.empty_blocks = 15
    bench.arrives(1, 0.2)
    assert not bench.counters["preload_cancel"] and bench.store.loading == {1: 14}


def test_each_piece_asks_for_its_blocks_again():
    bench = Bench(empty=30)
    bench.speaks(1, 30, 0.0)
    bench.store.empty_blocks = 0
    bench.arrives(1, 0.2)
    assert not bench.store.loading
    assert bench.kv.wake_s == pytest.approx(0.22)
    bench.store.empty_blocks = 14
    bench.kv.act(0.22, False)
    assert bench.store.loading == {1: 14}


def test_kv_loaded_early_takes_up_a_fifth_of_the_pool_at_most():
    bench = Bench()
    bench.speaks(1, 120, 0.0)
    bench.speaks(2, 80, 0.0)
    bench.speaks(3, 1, 0.0)
    assert bench.kv.reserved == 200
    assert bench.counters == {"preload_issued": 2, "preload_wait": 1}
    bench.kv.act(0.5, False)
    assert bench.counters["preload_skip_cap"] == 1


def test_pieces_follow_one_another_for_the_turn_that_comes_first():
    bench = Bench()
    bench.speaks(1, 20, 0.0, length_s=8.0)
    bench.speaks(2, 20, 0.0, length_s=4.0)
    assert bench.store.loading == {1: 16}, "one piece at a time"
    bench.arrives(1, 0.2)
    assert bench.store.loading == {2: 16}
    bench.arrives(2, 0.4)
    assert bench.store.loading == {2: 4}
    bench.arrives(2, 0.5)
    assert bench.store.loading == {1: 4}
    bench.kv.turn_arrived(2, 0.6)
    assert bench.counters == {"preload_issued": 2, "preload_hit": 1, "preload_blocks": 36}


def test_a_turn_that_comes_too_soon_loads_the_rest_itself():
    bench = Bench()
    bench.speaks(1, 40, 0.0)
    bench.arrives(1, 0.2)
    bench.kv.turn_arrived(1, 0.3)
    assert bench.store.cancelled == [1]
    bench.speaks(2, 40, 0.3)
    bench.kv.turn_arrived(2, 0.4)
    assert bench.counters == {
        "preload_issued": 2,
        "preload_late": 2,
        "preload_partial": 1,
        "preload_blocks": 16,
    }
    assert not bench.kv.preloads


def test_protection_of_what_nobody_came_for_ends_after_its_time():
    bench = Bench(preload_ttl_s=10.0)
    bench.speaks(1, 10, 0.0, length_s=30.0)
    bench.arrives(1, 0.2)
    bench.store.index.add(7, {1: 0})
    assert bench.kv.wake_s == 10.2
    bench.kv.act(10.1, False)
    assert bench.store.index.pop(1) == []
    bench.kv.act(10.2, False)
    assert bench.counters["preload_expired"] == 1
    assert bench.kv.reserved == 0
    assert bench.store.index.later_than(29.9) == 1, "a candidate, though of a session due at 30"


def test_urgent_requests_hold_what_waits_and_end_the_newest_load_first():
    bench = Bench()
    for session in (1, 2):
        bench.speaks(session, 40, 0.0)
    bench.store.host[3] = 10
    bench.kv.returning(3, 0.1)
    bench.kv.act(0.1, True)
    assert list(bench.kv.preloads) == [1, 3], "2 was the newest"
    assert bench.counters["preload_hold"] == 1
    bench.kv.act(0.12, True)
    assert list(bench.kv.preloads) == [3]
    assert bench.store.cancelled == [1]
    bench.kv.act(0.14, False)
    assert bench.store.loading == {3: 10}
    assert (bench.counters["preload_cancel"], bench.counters["preload_issued"]) == (2, 3)


def test_a_load_that_brings_nothing_is_given_up():
    bench = Bench()
    bench.speaks(1, 40, 0.0)
    del bench.store.loading[1]
    bench.kv.loaded(1, 0, 0.1)
    assert bench.counters == {"preload_issued": 1, "preload_cancel": 1}


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["speaks", "arrives", "turn", "start", "forget", "act", "urgent", "empty"]),
        st.integers(0, 5),
        st.integers(1, 160),
        st.sampled_from([0.0, 0.02, 0.3, 3.0, 11.0]),
    ),
    max_size=60,
)


@settings(max_examples=300)
@given(EVENTS)
def test_every_preload_has_one_end_and_the_cap_holds(events):
    bench, now, begun = Bench(), 0.0, 0
    for verb, session, blocks, later_s in events:
        now += later_s
        if verb == "speaks":
            known = session in bench.kv.preloads
            bench.speaks(session, max(blocks, bench.store.loading.get(session, 0)), now)
            begun += not known
        elif verb == "arrives" and bench.store.loading:
            bench.arrives(next(iter(bench.store.loading)), now)
        elif verb == "turn":
            bench.kv.turn_arrived(session, now)
            assert session not in bench.store.loading and session not in bench.kv.preloads
        elif verb == "start":
            bench.kv.turn_started(session, now)
        elif verb == "forget":
            bench.kv.forget(session)
        elif verb == "empty":
            bench.store.empty_blocks = blocks
        elif verb in ("act", "urgent"):
            bench.kv.act(now, verb == "urgent")
        counters, live = bench.kv.counters, list(bench.kv.preloads.values())
        issued = [preload for preload in live if preload.phase in ("loading", "ready")]
        ended = sum(counters[f"preload_{outcome}"] for outcome in FINAL)
        refused = sum(counters[f"preload_{outcome}"] for outcome in REFUSED)
        assert counters["preload_issued"] == ended + len(issued)
        assert begun == ended + refused + len(live)
        assert bench.kv.reserved <= 0.2 * Store.allocatable_blocks
        assert all(preload.loaded <= preload.blocks for preload in issued)
        assert len(bench.store.loading) <= 1
        assert bench.store.loading.keys() == {p.session for p in issued if p.under_way}
        assert bench.kv.wake_s is not None or not live


def test_what_was_loaded_for_a_turn_that_was_none_is_idle_again():
    bench = Bench()
    view = bench.speaks(1, 32, 0.0)
    bench.arrives(1, 0.1)
    assert bench.kv.preloads[1].loaded == 16 and 1 in bench.store.loading
    view.phase, view.playback_end_s, view.reply_gap_s = Phase.IDLE, 1.0, 2.0
    bench.kv.not_returning(1, 0.2)
    bench.kv.changed(view, 0.2)
    assert bench.store.cancelled == [1] and not bench.kv.preloads and bench.kv.reserved == 0
    assert bench.counters["preload_false"] == 1 and bench.counters["preload_false_blocks"] == 16
    bench.store.index.add(7, {1: 0})
    assert bench.store.index.pop(1) == [7], "nothing protects it"


def test_a_false_start_takes_nothing_from_a_turn_that_waits_for_its_first_step():
    bench = Bench()
    bench.kv.turn_arrived(1, 0.0)
    bench.kv.returning(1, 0.1)
    bench.kv.not_returning(1, 0.2)
    bench.store.index.add(7, {1: 0})
    assert bench.store.index.pop(1) == [] and "preload_false" not in bench.counters
    bench.kv.turn_started(1, 0.3)
