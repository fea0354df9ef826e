"""OmniProxy's rules: phases, prefixes, order, score, decode assignment, batch times, deferral (OmniInfer section 5)."""

from math import inf
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.prefix_index import PrefixIndex
from engines.core.router import Waits
from engines.core.routing_rules import Node, dynamo_cost
from engines.systems.omniinfer.proxy.prefill import BatchTimes, PrefillQueue
from engines.systems.omniinfer.proxy.score import LeastWork, best, best_of_code, by_priority

TOKENS = st.lists(st.integers(0, 2), max_size=24)


def hashes_of(tokens: list[int]) -> list[tuple[int, ...]]:
    """What stands for a prompt's full blocks of two tokens, each for its whole prefix."""
    return [tuple(tokens[:end]) for end in range(2, len(tokens) + 1, 2)]


@given(st.lists(st.tuples(st.sampled_from(["stored", "removed", "expect"]), TOKENS), max_size=30), TOKENS)
def test_an_index_has_what_was_stored_oftener_than_removed(events: list[tuple[str, list[int]]], asked: list[int]):
    index, counts, hoped = PrefixIndex(), {}, set()
    for kind, tokens in events:
        getattr(index, kind)(hashes_of(tokens))
        for each in hashes_of(tokens):
            if kind == "expect":
                hoped |= {each} if not counts.get(each) else set()
            else:
                hoped.discard(each)
                counts[each] = max(0, counts.get(each, 0) + (1 if kind == "stored" else -1))
    there = {each for each, count in counts.items() if count} | hoped
    wanted = [each in there for each in hashes_of(asked)]
    assert index.depth(hashes_of(asked)) == (wanted.index(False) if False in wanted else len(wanted))
    assert len(index) == len(there)
    index.clear()
    assert not len(index)


def test_expected_prefixes_are_forgotten_oldest_first():
    index = PrefixIndex(expected=3)
    for hashes in ("abc", "a", "d"):
        index.expect(hashes)
    assert [each in index for each in "abcd"] == [True, False, True, True]
    index.stored("efgh")
    assert len(index) == 7, "what the server says is not bounded here"


def order(*requests: tuple[int, float]) -> list[int]:
    """Places of requests (tokens, seconds waited) in the order in which they are looked at."""
    numbered = list(enumerate(requests))
    return [number for number, _ in by_priority(numbered, lambda each: each[1][0], lambda each: each[1][1])]


def test_short_prompts_go_first_until_others_have_waited():
    assert order((4000, 0.0), (100, 0.0), (2000, 0.0)) == [1, 2, 0]
    # 0.8 · 100/1000 = 0.08 of being shorter against 0.2 of every 50 ms.
    assert order((900, 0.0), (1000, 0.01)) == [0, 1], "0.08 against 0.04"
    assert order((900, 0.0), (1000, 0.03)) == [1, 0], "0.08 against 0.12"
    assert order((5, 0.3), (5, 0.3), (5, 0.9)) == [2, 0, 1]
    assert order() == []


def node(matched: int = 0, tokens: int = 0, running: int = 0) -> Node:
    return Node(matched, tokens, running, max_tokens=1000, max_running=10)


def test_equation_8_follows_the_prefix_until_the_load_outweighs_it():
    # score = 0.5 · matched / prompt − 0.5 · (½ · tokens / 1000 + ½ · running / 10)
    assert best([node(), node(matched=400)], 800) == 1
    assert best([node(), node(matched=400, tokens=500, running=4)], 800) == 1, "0.25 > 0.225"
    assert best([node(), node(matched=400, tokens=500, running=5)], 800) == 0, "0.25 = 0.25: the first of equals"
    assert best([node(), node(matched=400, tokens=600, running=5)], 800, alpha=0.9) == 1
    assert best([node(), node(matched=800)], 800, alpha=0.0) == 0, "load alone"
    assert best([node(running=1), node(tokens=1)], 0) == 1


def test_the_oss_rule_goes_by_match_then_tokens_then_requests_under_caps():
    assert best_of_code([node(16, 10), node(32, 900, 9), node(32, 800, 9)], 50, -1) == 2
    assert best_of_code([node(16, 10), node(32, 950, 9)], 50, -1) == 1, "at the cap of tokens"
    assert best_of_code([node(16, 10), node(32, 951, 9)], 50, -1) == 0, "over it"
    assert best_of_code([node(16, 10), node(32, 0, 10)], 50, -1) == 0, "over the cap of requests"
    assert best_of_code([node(64, 999, 12), node(0, 998, 10)], 50, -1) == 1, "overload is not refused"
    assert best_of_code([node(0, 999, 1), node(0, 998, 12)], 50, -1) == 1, "without a match no cap counts"
    assert best_of_code([node(0, 1), node(16)], 5000, -1) == 1, "an idle node takes any prompt"
    assert [best_of_code([node()] * 3, 50, after) for after in (-1, 0, 1, 2)] == [0, 1, 2, 0]


def test_dynamo_adds_what_is_to_be_computed_and_what_is_under_way():
    assert dynamo_cost(node(matched=32, tokens=160), 64) == 32 + 160 + 64
    assert dynamo_cost(node(matched=32, tokens=160), 64, overlap_weight=2.0) == 64 + 160 + 64


def decode_nodes(*caps: int) -> LeastWork:
    return LeastWork([cast("Any", SimpleNamespace(max_running=cap)) for cap in caps])


def test_nodes_with_equal_work_take_turns():
    nodes = decode_nodes(4, 4, 4)
    assert [place for name in "abcd" for _, place in nodes.assign([Waits(name, 5)])] == [0, 1, 2, 0]


def test_the_longest_is_assigned_first_to_the_node_with_the_least_work():
    nodes = decode_nodes(2, 2, 2)
    waiting = [Waits(name, work) for name, work in zip("abcdefg", (3, 9, 5, 7, 1, 4, 2), strict=True)]
    assigned = {request.key: place for request, place in nodes.assign(waiting)}
    assert assigned == {"b": 0, "d": 1, "c": 2, "f": 2, "a": 1, "g": 0}, "e finds all of them full"
    assert nodes.under_way == [11, 10, 9] and nodes.load == [2, 2, 2]
    nodes.done(1, 7)
    assert [place for _, place in nodes.assign([Waits("e", 1)])] == [1]
    assert nodes.work(3500, 1000) == 4500 and nodes.work(3500, None) == 3500


def batch_times(*measured: tuple[int, float]) -> BatchTimes:
    times = BatchTimes()
    for tokens, seconds in measured:
        times.add(tokens, seconds)
    return times


def test_batch_times_are_a_line_through_the_latest_batches():
    line = [(tokens, 0.2 + 2e-5 * tokens) for tokens in (1000, 4000, 9000)]
    assert [BatchTimes().predict(tokens) for tokens in (0, 3500, 14_000)] == pytest.approx([0.17, 0.22, 0.37])
    assert batch_times(*[(3500, 0.5)] * 3).predict(0) == pytest.approx(0.45), "too few for a line"
    assert batch_times(*[(3500, 0.5)] * 4).predict(0) == pytest.approx(0.5)
    no_batches = [(2, 0.0099), (2, 600.1)]
    times = batch_times(*line, (16_000, 0.52), *no_batches)
    assert (times.predict(10_000), times.spread_s) == pytest.approx((0.4, 0.0))
    latest = batch_times(*line, *[(8000, 0.5), (16_000, 0.5)] * 64)
    assert latest.predict(100) == latest.predict(16_000) == pytest.approx(0.5), "the old ones are forgotten"
    falling = batch_times(*[(1000, 0.5), (9000, 0.3)] * 2)
    assert falling.predict(100) == falling.predict(10_000) == pytest.approx(0.4), "longer batches take no less"
    assert falling.spread_s == pytest.approx(0.1)
    assert batch_times((1, 0.01), (1, 600.0)).predict(1) == pytest.approx(300.0, abs=0.01), "these may be batches"


class Instances:
    """A queue before instances that begin a batch as soon as a request waits, in the order of arrival, as vLLM with
    chunked prefill does. Requests go to the first instance that takes one."""

    def __init__(self, nodes: int, room: int, late: float = 1.0) -> None:
        self.room, self.late = room, late
        self.now: float = 0.0
        self.waiting: list[list[list[Any]]] = [[] for _ in range(nodes)]
        self.ends: list[tuple[float, list[Any]] | None] = [None] * nodes
        self.answered: dict[Any, float] = {}
        self.handed: list[tuple[Any, int]] = []
        self.tokens: dict[Any, int] = {}
        self.queue: PrefillQueue[Any] = PrefillQueue(
            nodes,
            lambda key: [self.tokens[key]] * nodes,
            lambda key, among: among[0],
            lambda *to: self.handed.append(to),
            room=room,
        )

    def seconds(self, tokens: int) -> float:
        return self.late * (0.17 + tokens * 0.05 / 3500)

    def comes(self, key: Any, tokens: int) -> None:
        self.tokens[key] = tokens
        self.queue.add(key, tokens, self.now)
        self._poll()

    def _poll(self) -> None:
        """Hand requests over; idle instances begin."""
        for key, node in self.queue.due(self.now):
            self.waiting[node].append([key, self.tokens[key]])
        for node in range(len(self.ends)):
            self._begin(node)

    def give(self, key: Any, tokens: int, node: int) -> None:
        """Without the queue."""
        self.waiting[node].append([key, tokens])
        self._begin(node)

    def _begin(self, node: int) -> None:
        if self.ends[node] is None and self.waiting[node]:
            tokens, done = 0, []
            while self.waiting[node] and tokens < self.room:
                first = self.waiting[node][0]
                part = min(first[1], self.room - tokens)
                tokens, first[1] = tokens + part, first[1] - part
                if not first[1]:
                    done.append(self.waiting[node].pop(0)[0])
            self.ends[node] = self.now + self.seconds(tokens), done

    def run(self, until: float) -> None:
        """Batches end and begin, and the queue is asked when it wants to be."""
        while (at_s := self._next_s()) <= until:
            self.now = at_s
            for node, end in enumerate(self.ends):
                if end is not None and end[0] == at_s:
                    self.ends[node] = None
                    for key in end[1]:
                        self._answer(key)
                    self._begin(node)
            self._poll()
        self.now = max(self.now, until)

    def _next_s(self) -> float:
        asks_s = self.queue.next_s(self.now)
        return min([end[0] for end in self.ends if end is not None] + ([] if asks_s is None else [asks_s]), default=inf)

    def _answer(self, key: Any) -> None:
        self.answered[key] = self.now
        if key in self.tokens:
            self.queue.answered(key, self.now)


def stream(rate: float, requests: int, deferred: bool) -> np.ndarray:
    """Seconds until two instances have answered prompts that come by chance, as long as OmniInfer's; at once each goes
    where the fewest tokens wait or are computed."""
    instances, rng = Instances(2, 16_384), np.random.default_rng(0)
    at_s = np.cumsum(rng.exponential(1 / rate, requests))
    tokens = np.minimum(rng.lognormal(np.log(3200) - 0.18, 0.6, requests), 14_000).astype(int) + 1
    node_of: dict[int, int] = {}
    for key in range(requests):
        instances.run(at_s[key])
        if deferred:
            instances.comes(key, int(tokens[key]))
        else:
            under_way = [other for other in node_of if other not in instances.answered]
            load = [sum(tokens[other] for other in under_way if node_of[other] == node) for node in range(2)]
            node_of[key] = load.index(min(load))
            instances.give(key, int(tokens[key]), node_of[key])
    instances.run(1e6)
    return np.array([instances.answered[key] for key in range(requests)]) - at_s


@pytest.mark.parametrize("rate", [8.0, 18.0, 24.0])
def test_deferral_lengthens_neither_mean_nor_tail(rate: float):
    """Two instances that can do 25 a second, at a third of that and at nearly all of it."""
    held, at_once = (stream(rate, 1500, deferred) for deferred in (True, False))
    assert held.mean() < at_once.mean()
    assert np.percentile(held, 99) <= np.percentile(at_once, 99)


def test_a_batch_whose_requests_were_all_discarded_counts_as_ended():
    held = Instances(1, 10_000)
    held.comes("a", 100)
    held.comes("b", 100)
    assert held.handed == [("a", 0)]
    held.queue.discard("a", 0.01)
    assert held.queue.due(0.01) == [("b", 0)]


@given(
    st.lists(st.tuples(st.floats(0, 0.2), st.integers(1, 20_000)), min_size=1, max_size=60),
    st.integers(1, 3),
    st.sampled_from([0.5, 1.0, 1.7]),
)
def test_every_request_is_answered_and_none_waits_while_an_instance_is_idle(
    requests: list[tuple[float, int]], nodes: int, late: float
):
    held = Instances(nodes, 16_384, late)
    for key, (later, tokens) in enumerate(requests):
        held.run(held.now + later)
        held.comes(key, tokens)
        assert not len(held.queue) or all(end is not None for end in held.ends)
    held.run(1e6)
    assert sorted(held.answered) == sorted(key for key, _ in held.handed) == list(range(len(requests)))
    assert len(held.queue) == 0
