"""OmniProxy's rules: phases, prefixes, order, score, decode assignment, batch times, deferral (OmniInfer section 5)."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.proxy.batch_times import BatchTimes
from engines.core.proxy.decode import DecodeNodes, Waits, workload
from engines.core.proxy.order import by_priority
from engines.core.proxy.phases import BACK, Lifecycle, Phase
from engines.core.proxy.prefill import LEAD_S, PrefillQueue
from engines.core.proxy.prefixes import PrefixIndex, block_hashes
from engines.core.proxy.score import Node, best, best_of_code, dynamo_cost


@given(st.lists(st.sampled_from(list(Phase)), max_size=40))
def test_phases_never_skip(asked: list[Phase]):
    life, entered = Lifecycle(0.0), [Phase.TOKENIZING]
    for now, phase in enumerate(asked, 1):
        before = life.phase
        try:
            life.enter(phase, float(now))
        except ValueError:
            assert life.phase is before and phase != before + 1
        else:
            entered.append(phase)
            assert life.begun_s[phase] == now
    for before, after in pairwise(entered):
        assert after == before + 1 or (after is Phase.PREFILL_WAITING and before in BACK)


def test_a_life_of_eight_phases_knows_how_long_each_was():
    life = Lifecycle(1.0)
    for phase in list(Phase)[1:]:
        life.enter(phase, 1.0 + phase**2)
    assert [life.seconds(phase) for phase in Phase] == [1, 3, 5, 7, 9, 11, 13, None]
    with pytest.raises(ValueError, match="DECODING cannot enter TOKENIZING"):
        life.enter(Phase.TOKENIZING, 99.0)
    with pytest.raises(ValueError, match="before"):
        Lifecycle(1.0).enter(Phase.APC_MATCHING, 0.5)


TOKENS = st.lists(st.integers(0, 2), max_size=24)


@given(TOKENS, TOKENS, st.sampled_from([1, 2, 4]))
def test_two_prompts_share_as_many_hashes_as_first_blocks(one: list[int], other: list[int], size: int):
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    hashes = block_hashes(one, size), block_hashes(other, size)
    shared = [a == b for a, b in zip(*hashes, strict=False)]
    assert shared == [i < same // size for i in range(len(shared))]
    assert block_hashes(bytes(one), size) == block_hashes(bytes([*one, 9]), size)[: len(one) // size]


@given(st.lists(st.tuples(st.sampled_from(["stored", "removed", "expect"]), TOKENS), max_size=30), TOKENS)
def test_an_index_has_what_was_stored_oftener_than_removed(
    events: list[tuple[str, list[int]]], asked: list[int]
):
    index, counts, hoped = PrefixIndex(), {}, set()
    for kind, tokens in events:
        hashes = block_hashes(tokens, 2)
        getattr(index, kind)(hashes)
        for each in hashes:
            if kind == "expect":
                hoped |= {each} if not counts.get(each) else set()
            else:
                hoped.discard(each)
                counts[each] = max(0, counts.get(each, 0) + (1 if kind == "stored" else -1))
    there = {each for each, count in counts.items() if count} | hoped
    wanted = [each in there for each in block_hashes(asked, 2)]
    assert index.depth(block_hashes(asked, 2)) == (wanted.index(False) if False in wanted else len(wanted))
    assert len(index) == len(there)
    index.clear()
    assert not len(index)


def test_what_is_only_expected_is_forgotten_oldest_first():
    index = PrefixIndex(expected=3)
    index.expect("abc")
    index.expect("a")
    index.expect("d")
    assert [each in index for each in "abcd"] == [True, False, True, True]
    index.stored("efgh")
    assert len(index) == 7, "what the server says is not bounded here"


def test_short_prompts_go_first_until_others_have_waited():
    def order(*requests: tuple[int, float]) -> list[int]:
        numbered = list(enumerate(requests))
        sorted_ = by_priority(numbered, lambda each: each[1][0], lambda each: each[1][1])
        return [number for number, _ in sorted_]

    assert order((4000, 0.0), (100, 0.0), (2000, 0.0)) == [1, 2, 0]
    # 0.8 · 100/1000 = 0.08 of being shorter against 0.2 of having waited longest.
    assert order((900, 0.0), (1000, 1.0)) == [1, 0]
    assert order((700, 0.0), (1000, 1.0)) == [0, 1], "0.24 against 0.2"
    assert order((900, 0.0), (1000, 0.01)) == [0, 1], "compared with 50 ms at least: 0.04"
    assert order((5, 0.3), (5, 0.3), (5, 0.9)) == [2, 0, 1]
    assert order() == []


def node(matched: int = 0, tokens: int = 0, running: int = 0) -> Node:
    return Node(matched, tokens, running, max_tokens=1000, max_running=10)


def test_equation_8_follows_the_prefix_until_the_load_outweighs_it():
    # score = 0.5 · matched / prompt − 0.5 · (½ · tokens / 1000 + ½ · running / 10)
    assert best([node(), node(matched=400)], 800) == 1
    assert best([node(), node(matched=400, tokens=500, running=4)], 800) == 1, "0.25 > 0.225"
    assert best([node(), node(matched=400, tokens=600, running=5)], 800) == 0, "0.25 < 0.275"
    assert best([node(), node(matched=400, tokens=600, running=5)], 800, alpha=0.9) == 1
    assert best([node(), node(matched=800)], 800, alpha=0.0) == 0, "load alone; the first of equals"
    assert best([node(running=1), node(tokens=1)], 0) == 1


NODES = st.lists(st.builds(node, st.integers(0, 64), st.integers(0, 1500), st.integers(0, 12)), min_size=1)


@given(NODES, st.integers(1, 64))
def test_more_match_or_less_load_never_loses_a_request(nodes: list[Node], prompt: int):
    taken = best(nodes, prompt)
    better = nodes[taken]._replace(matched=nodes[taken].matched + 5, running=max(0, nodes[taken].running - 1))
    assert best([*nodes[:taken], better, *nodes[taken + 1 :]], prompt) == taken


def test_the_code_goes_by_match_then_tokens_then_requests_under_caps():
    assert best_of_code([node(16, 10), node(32, 900, 9), node(32, 800, 9)], 50, -1) == 2
    assert best_of_code([node(16, 10), node(32, 960, 9)], 50, -1) == 0, "over the cap of tokens"
    assert best_of_code([node(16, 10), node(32, 0, 10)], 50, -1) == 0, "over the cap of requests"
    assert [best_of_code([node()] * 3, 50, after) for after in (-1, 0, 1, 2)] == [0, 1, 2, 0]
    assert best_of_code([node(tokens=5), node(), node()], 50, 2) == 1
    assert best_of_code([node(64, 999, 12), node(0, 999, 10)], 50, -1) == 1, "overload is not refused"
    assert best_of_code([node(0, 0, 0)], 5000, -1) == 0, "an idle node takes any prompt"


def test_dynamo_adds_what_is_to_be_computed_and_what_is_under_way():
    assert dynamo_cost(node(matched=32, tokens=160), 64) == 32 + 160 + 64
    assert dynamo_cost(node(matched=32, tokens=160), 64, overlap_weight=2.0) == 64 + 160 + 64


def test_the_longest_is_assigned_first_to_the_node_with_the_least_work():
    nodes = DecodeNodes([2, 2, 2])
    waiting = [Waits(name, work) for name, work in zip("abcdefg", (3, 9, 5, 7, 1, 4, 2), strict=True)]
    assigned = {request.key: place for request, place in nodes.assign(waiting)}
    assert assigned == {"b": 0, "d": 1, "c": 2, "f": 2, "a": 1, "g": 0}, "e finds all of them full"
    assert nodes.work == [11, 10, 9] and nodes.running == [2, 2, 2]
    nodes.release(1, 7)
    assert [place for _, place in nodes.assign([Waits("e", 1)])] == [1]
    assert workload(3500, 1000) == 4500 and workload(3500, None) == 3500
    assert workload(3500, 1000, gamma=0.5) == 4000


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.sampled_from([None, (0,), (1, 2), (0, 3)])), max_size=30),
    st.lists(st.integers(0, 4), min_size=4, max_size=4),
)
def test_nobody_leaves_its_group_and_no_node_gets_more_than_its_cap(
    asked: list[tuple[int, tuple[int, ...] | None]], caps: list[int]
):
    nodes = DecodeNodes(caps)
    waiting = [Waits(number, work, group) for number, (work, group) in enumerate(asked)]
    assigned = nodes.assign(waiting)
    assert all(request.nodes is None or place in request.nodes for request, place in assigned)
    assert all(running <= cap for running, cap in zip(nodes.running, caps, strict=True))
    left = {request.key for request in waiting} - {request.key for request, _ in assigned}
    for request in (waiting[key] for key in left):
        among = range(4) if request.nodes is None else request.nodes
        assert all(nodes.running[i] == caps[i] for i in among), "left out though there is room"
    for request, place in assigned:
        nodes.release(place, request.work)
    assert nodes.running == [0] * 4 and nodes.work == [0] * 4


def test_batch_times_are_means_of_the_latest_and_a_table_before():
    times = BatchTimes()
    assert [times.predict(size) for size in (0, 1, 2, 3, 4, 6, 5000)] == [
        0, 0.22, 0.28, 0.33, 0.38, pytest.approx(0.48), 30,
    ]  # fmt: skip
    for seconds in (0.1, 0.3, 0.005, 700.0):
        times.add(2, seconds)
    assert times.predict(2) == pytest.approx(0.2), (
        "what is shorter than 10 ms or longer than 600 s is no batch"
    )
    for _ in range(128):
        times.add(2, 0.5)
    assert times.predict(2) == pytest.approx(0.5)
    times.add(100, 2.0)
    assert times.predict(64) == times.predict(90) == 2.0


class Deferral:
    """A queue before two nodes; `short` goes to the first, everything else where `wanted` says."""

    def __init__(self, **limits: float) -> None:
        self.wanted: dict[str, int | None] = {}
        self.sent: list[tuple[str, int]] = []
        self.queue = PrefillQueue[str](
            2, lambda key: self.wanted.get(key, 0), lambda *to: self.sent.append(to), **limits
        )


def test_a_request_goes_at_once_to_an_idle_node():
    held = Deferral()
    held.queue.add("a", 100, 5.0)
    assert held.queue.due(5.0) == held.sent == [("a", 0)]
    assert len(held.queue) == 0 and held.queue.next_s(5.0) is None


def test_it_waits_for_the_end_of_its_nodes_batch_and_is_sorted_anew():
    held = Deferral()
    held.queue.begun(0, 2, now=10.0)  # 0.28 s by the table
    held.queue.add("long", 4000, 10.01)
    assert held.queue.due(10.01) == []
    assert held.queue.next_s(10.01) == pytest.approx(10.28 - LEAD_S)
    held.queue.add("short", 100, 10.2)
    held.wanted["other"] = 1
    held.queue.add("other", 9000, 10.2)
    assert held.queue.due(10.2) == [("other", 1)], "whose node is idle"
    assert held.queue.due(10.28 - LEAD_S) == [("short", 0), ("long", 0)]


def test_a_batch_that_ends_early_frees_its_node_and_corrects_the_next_prediction():
    held = Deferral()
    held.queue.begun(0, 1, now=0.0)
    held.queue.add("a", 100, 0.01)
    assert held.queue.due(0.1) == []
    held.queue.ended(0, now=0.1)
    assert held.queue.due(0.1) == [("a", 0)]
    held.queue.begun(0, 1, now=1.0)
    assert held.queue.free_s(0) == pytest.approx(1.1)


def test_nobody_starves_and_nobody_goes_where_none_may_take_it():
    held = Deferral(starved_s=0.05)
    held.queue.begun(0, 8, now=0.0)
    held.queue.add("a", 100, 0.0)
    held.wanted["b"] = None
    held.queue.add("b", 100, 0.0)
    assert held.queue.due(0.04) == [] and held.queue.next_s(0.04) == 0.05
    assert held.queue.due(0.05) == [("a", 0)], "b has no node yet"
    held.queue.discard("b")
    held.wanted["b"] = 1
    assert held.queue.due(9.0) == []


@given(
    st.lists(
        st.tuples(
            st.floats(0, 0.2),
            st.sampled_from(["add", "begun", "ended"]),
            st.integers(0, 1),
            st.integers(1, 500),
        ),
        max_size=40,
    )
)
def test_everybody_is_handed_over_once_and_in_time(acts: list[tuple[float, str, int, int]]):
    now, added, held = 0.0, {}, Deferral(starved_s=0.5)
    for number, (later, act, place, size) in enumerate(acts):
        until = now + later
        while (at_s := held.queue.next_s(now)) is not None and at_s <= until:
            now = at_s
            held.queue.due(now)
        now = until
        if act == "add":
            held.wanted[str(number)] = place
            added[str(number)] = now
            held.queue.add(str(number), size, now)
        elif act == "begun":
            held.queue.begun(place, 1 + size % 8, now)
        else:
            held.queue.ended(place, now)
        held.queue.due(now)
    while (at_s := held.queue.next_s(now)) is not None:
        now = at_s
        held.queue.due(now)
        assert now <= max(added.values()) + 0.5 + 1e-9
    assert sorted(key for key, _ in held.sent) == sorted(added)
    assert all(place == held.wanted[key] for key, place in held.sent)
