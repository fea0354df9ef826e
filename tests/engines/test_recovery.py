"""Sessions at a full KV pool: stock vLLM stops for good; preempting waiting sessions goes on and loses no token."""

import random
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core import vllm_adapter as vllm
from tests.engines.test_bounded import conserve, make_scheduler

SESSIONS = 16
FED, ANSWER = 80, 4


class Engine:
    """Sessions whose frames follow one another. Answers depend on the context alone, so that equal contexts answer
    equally, however often they were computed."""

    def __init__(self, blocks: int, rescue: bool, caching: bool = True, window: int | None = None) -> None:
        self.scheduler = make_scheduler(blocks, window=window, prefix_caching=caching)
        self.scheduler.preempts_waiting = rescue
        self.scheduler.on_chunk = lambda name, position: self.begins[name].append(position)
        self.hash_blocks = 16 if caching else None
        self.rng = random.Random(0)
        self.answered: Counter[str] = Counter()
        self.begins: defaultdict[str, list[int]] = defaultdict(list)
        self.chunks: defaultdict[str, list[list[int]]] = defaultdict(list)
        self.preempted: list[str] = []
        self.now = 0.0

    def feed(self, name: str, fed: int = FED, answer: int = ANSWER) -> None:
        self.now += 0.01
        prompt = [self.rng.randrange(10_000) for _ in range(fed)]
        self.chunks[name].append(prompt)
        self.scheduler.add_request(vllm.make_chunk(name, prompt, answer, self.now, self.hash_blocks))

    def step(self) -> bool:
        """One round; whether anything happened in it."""
        scheduler = self.scheduler
        output = scheduler.schedule()
        rows, sampled = vllm.rows_of(scheduler, output), []
        for row in rows:
            request = scheduler.requests[row.request_id]
            assert row.context + row.tokens <= request.num_tokens
            sampled.append([sum(request.all_token_ids) % 9973] if row.samples else [])
        self.preempted += sorted(output.preempted_req_ids or ())
        for name, ids, finished in vllm.finish_step(scheduler, output, rows, sampled):
            assert not finished
            self.answered[name] += len(ids)
        return bool(rows) or bool(output.preempted_req_ids)

    def settle(self) -> None:
        while self.step():
            pass

    def context(self, name: str) -> list[int]:
        """All tokens of a session, which has its chunks where they began."""
        context = list(self.scheduler.requests[name].all_token_ids)
        for position, chunk in zip(self.begins[name], self.chunks[name], strict=True):
            assert context[position : position + len(chunk)] == chunk
        return context

    def fed(self, **tokens: int) -> None:
        """One frame of these sessions after another, each as far as it gets, with an answer of two tokens."""
        for name, count in tokens.items():
            self.feed(name, fed=count, answer=2)
            self.settle()

    @property
    def waiting(self) -> list[str]:
        return [request.request_id for request in self.scheduler.waiting_requests()]

    def frames(self, count: int) -> None:
        """`count` frames of all sessions, each as far as it gets before the next."""
        for _ in range(count):
            for i in range(SESSIONS):
                self.feed(f"s{i}")
            self.settle()


@pytest.mark.parametrize("caching", [True, False])
def test_stock_vllm_stops_for_good_when_waiting_sessions_fill_the_pool(caching: bool):
    """16 sessions grow by 83 tokens a frame in 16,000: full in frame 12, and none runs again."""
    engine = Engine(1000, rescue=False, caching=caching)
    engine.frames(11)
    assert sum(engine.answered.values()) == 11 * SESSIONS * ANSWER
    engine.frames(9)
    answered, scheduler = engine.answered.copy(), engine.scheduler
    assert sum(answered.values()) < 13 * SESSIONS * ANSWER
    assert not scheduler.running and not engine.step()
    assert scheduler.free_blocks < SESSIONS * 6
    assert scheduler.counters["alloc_fail_waiting"] > 0
    assert (engine.preempted, scheduler.counters["recovered"]) == ([], 0)
    engine.frames(5)
    assert engine.answered == answered


@settings(max_examples=30)
@given(
    ops=st.lists(
        st.one_of(
            st.tuples(st.just("feed"), st.integers(0, 4), st.integers(1, 120), st.integers(1, 30)),
            st.tuples(st.just("step"), st.integers(1, 15)),
            st.tuples(st.just("close"), st.integers(0, 4)),
        ),
        min_size=10,
        max_size=60,
    ),
    blocks=st.integers(40, 120),
    caching=st.booleans(),
    window=st.sampled_from([None, 64]),
)
def test_every_session_that_fits_alone_is_answered_in_full(ops, blocks, caching, window):
    """Whatever happened before: in the end every session has answered all of its chunks, one whole context after the
    other, and its context is its chunks, each behind what was said before."""
    engine = Engine(blocks, rescue=True, caching=caching, window=window)
    room = blocks * 16 - 16
    said: dict[str, int] = {}
    size: Counter[str] = Counter()
    for verb, number, *chunk in ops:
        name = f"s{number}"
        if verb == "feed" and size[name] + sum(chunk) <= room:
            size[name] += sum(chunk)
            said[name] = said.get(name, 0) + chunk[1]
            engine.feed(name, *chunk)
        elif verb == "close":
            engine.scheduler.abort([name])
            for known in (said, size, engine.answered, engine.begins, engine.chunks):
                known.pop(name, None)
        elif verb == "step":
            for _ in range(number):
                engine.step()
                conserve(engine.scheduler)
    engine.settle()
    assert {name: engine.answered[name] for name in said} == said
    for name in said:
        engine.context(name)


def test_the_latest_session_is_preempted_for_a_refused_one():
    small = Engine(100, rescue=True)
    small.fed(a=512, b=512, c=512)
    small.feed("a", fed=200, answer=2)
    assert small.step()
    scheduler = small.scheduler
    assert small.preempted == ["c"] and scheduler.blocks_held("c") == 0
    assert [r.request_id for r in scheduler.running] == ["a"]
    assert small.waiting == ["b", "c"]
    assert scheduler.num_waiting_for_streaming_input == 2
    small.settle()
    assert small.answered == {"a": 4, "b": 2, "c": 2}
    small.fed(c=30)
    assert small.answered["c"] == 4
    assert small.begins["c"] == [0, 513]


def test_refused_allocations_are_counted_by_path():
    """A session that grows while it runs finds the pool full and preempts itself; then it waits for its context."""
    engine = Engine(100, rescue=False)
    engine.fed(a=900)
    assert engine.scheduler.counters == {}
    engine.feed("b", fed=650, answer=60)
    engine.settle()
    assert engine.preempted == ["b"]
    assert engine.scheduler.counters["alloc_fail_running"] == 1
    assert engine.scheduler.counters["alloc_fail_waiting"] >= 1
