"""Background loads: they bring history back before it is asked for, compute nothing and lose nothing."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engines.core.kv_manager import EvictionMode
from engines.systems.liveserve.next_use import NextUseIndex
from tests.engines.host import Bench


@pytest.fixture
def bench() -> Bench:
    """Session 1 has 40 blocks of history on the host and, with a pool of 100, none on the GPU."""
    bench = Bench(101)
    bench.turn("1.0", 1, 640)
    bench.settle()
    bench.turn("2.0", 2, 1584)
    bench.settle()
    bench.scheduler.remember(1, bench.tokens(1, 642))
    return bench


def test_a_piece_brings_the_next_missing_blocks_and_computes_nothing(bench: Bench):
    assert bench.load(1, 16)
    assert not bench.load(1, 16)  # one at a time
    assert bench.step() == {} and bench.scheduler.free_blocks == 84
    bench.arrive()
    assert bench.step() == {}
    assert bench.landed == [(1, 16)] and bench.resident(1) == 16 and bench.missing(1) == 24
    assert bench.scheduler.free_blocks == 100
    assert bench.transfers.counters["h2d_bytes_background"] == 16 * bench.transfers.block_bytes
    assert bench.load(1, 100)
    bench.settle()
    assert bench.landed[-1] == (1, 24) and bench.missing(1) == 0
    assert not bench.load(1, 1)
    bench.turn("1.1", 1, 656)
    assert bench.step() == {"1.1": 16}


def test_a_turn_that_comes_while_a_piece_is_on_its_way_waits_for_it_and_loads_the_rest(bench: Bench):
    bench.load(1, 16)
    bench.step()
    bench.turn("1.1", 1, 656)
    assert bench.step() == {} and bench.scheduler.deferred[-1] == "1.1"
    bench.settle()
    assert bench.landed == [(1, 16)] and ("1.1", 24) in bench.loads and bench.finished[-1] == "1.1"


def test_a_cancelled_piece_frees_its_blocks_when_the_copy_has_ended_and_leaves_earlier_ones(bench: Bench):
    bench.load(1, 16)
    bench.settle()
    bench.load(1, 16)
    bench.step()
    bench.scheduler.preloads.cancel(1)
    bench.check()
    assert bench.scheduler.free_blocks == 68  # 16 under way, and before them those of the first piece
    bench.settle()
    assert bench.scheduler.free_blocks == 100 and bench.resident(1) == 16 and bench.landed == [(1, 16)]


MODES: list[EvictionMode | None] = [None, "off", "log_only", "on"]


class AnySequence(RuleBasedStateMachine):
    """Turns, aborts, loads, cancels, truncations and time in any order: no block is lost, no piece computes."""

    @initialize(blocks=st.integers(40, 120), host=st.sampled_from([30, 200, 10_000]), mode=st.sampled_from(MODES))
    def begin(self, blocks: int, host: int, mode: EvictionMode | None) -> None:
        self.bench = Bench(blocks, host)
        self.index = NextUseIndex()
        if mode is not None:
            self.bench.scheduler.evict_by(self.index, mode)
        self.turns = 0
        self.histories = dict.fromkeys(range(4), 0)

    @rule(session=st.integers(0, 3), tokens=st.integers(1, 200), output=st.integers(1, 40))
    def turn(self, session: int, tokens: int, output: int) -> None:
        length = self.histories[session] + tokens
        if length + output > (self.bench.scheduler.allocatable_blocks - 1) * 16:
            length = self.histories[session] = tokens
        self.histories[session] = length
        self.bench.turn(f"{session}.{self.turns}", session, length, output)
        self.turns += 1

    @rule(pick=st.integers(0, 7))
    def abort(self, pick: int) -> None:
        turns = [id for id in self.bench.scheduler.requests if not id.startswith("preload")]
        if turns:
            self.bench.scheduler.abort([turns[pick % len(turns)]])

    @rule(session=st.integers(0, 3), blocks=st.integers(1, 30))
    def load(self, session: int, blocks: int) -> None:
        self.bench.load(session, blocks)

    @rule(session=st.integers(0, 3))
    def cancel(self, session: int) -> None:
        self.bench.scheduler.preloads.cancel(session)

    @rule(session=st.integers(0, 3), next_use_s=st.none() | st.floats(0, 100))
    def key(self, session: int, next_use_s: float | None) -> None:
        self.index.key(session, next_use_s)

    @rule(session=st.integers(0, 3), keep=st.integers(0, 400))
    def truncate(self, session: int, keep: int) -> None:
        self.bench.scheduler.truncate(session, keep)

    @rule(rounds=st.integers(1, 10))
    def step(self, rounds: int) -> None:
        for _ in range(rounds):
            assert not any(id.startswith("preload") for id in self.bench.step())

    @rule()
    def pass_time(self) -> None:
        self.bench.arrive()

    @invariant()
    def blocks_are_conserved(self) -> None:
        if hasattr(self, "bench"):
            self.bench.check()

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            scheduler = self.bench.scheduler
            for session in range(4):
                scheduler.preloads.cancel(session)
            self.bench.settle()
            self.bench.check()
            assert scheduler.free_blocks == scheduler.allocatable_blocks
            offloading = scheduler.offloading
            known = scheduler.requests, offloading._jobs, offloading._req_status
            waiting = scheduler.waiting, scheduler.deferred_waiting, scheduler.kv_holding_waiting
            assert not any(known) and not any(waiting)


AnySequence.TestCase.settings = settings(
    max_examples=40, stateful_step_count=30, suppress_health_check=[HealthCheck.too_slow]
)
test_any_sequence = pytest.mark.filterwarnings("ignore")(AnySequence.TestCase)
