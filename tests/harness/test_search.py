"""A search for the largest value that passes: over seeds of a replay, and over numbers of calls at an endpoint."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.slo.search import AGAIN, CLOSE, Bounds, Question, Search, Searches, Step, Tried, judge, search
from harness.slo.targets import Repeat, parse_targets

EXACT = 10**9
WHOLE = Bounds(1, 64, 8, whole=True, close=EXACT)
TARGETS = parse_targets("ttfp_p90<=1.0 continuity>=0.95")


def question(bounds: Bounds, seeds: Iterable[int] = (0,), counts: str = "") -> Question:
    return Question("c", TARGETS, bounds, tuple(seeds), counts)


def calls(up_to: int = 64, first: int = 8, counts: str = "call") -> Question:
    """The question of `rehearse live --find`."""
    return question(Bounds(1, up_to, first, whole=True, close=CLOSE), counts=counts)


def met(passed: Mapping[int, Mapping[float, bool]]) -> list[Tried]:
    return [
        Tried(value, seed, Repeat("p", (0.5 if passes else 2.0, 1.0)))
        for seed, values in passed.items()
        for value, passes in values.items()
    ]


def searched(bounds: Bounds, most: dict[int, float]) -> tuple[Search, list[list[tuple[float, int]]]]:
    """The search at its end, where seed s meets every target up to `most[s]`, and its rounds."""
    tried, rounds = [], []
    while wanted := Search(question(bounds, most), tried).wanted:
        rounds.append(wanted)
        for value, seed in wanted:
            assert bounds.lowest <= value <= bounds.highest
            assert (value, seed) not in {(each.value, each.seed) for each in tried}
        tried += met({seed: {value: value <= most[seed]} for value, seed in wanted})
    return Search(question(bounds, most), tried), rounds


@st.composite
def bounds(draw: st.DrawFn) -> Bounds:
    lowest = draw(st.integers(1, 40))
    return Bounds(lowest, draw(st.integers(lowest, 300)), draw(st.integers(1, 300)), whole=True, close=EXACT)


@given(bounds(), st.lists(st.integers(0, 400), min_size=1, max_size=4))
def test_it_finds_the_largest_value_of_all_and_of_each_seed(bounds: Bounds, most: list[int]):
    def reached(limit: float) -> float | None:
        return min(limit, bounds.highest) if limit >= bounds.lowest else None

    search, rounds = searched(bounds, dict(enumerate(most)))
    assert search.holds == reached(min(most))
    assert (search.stops is None) == (min(most) >= bounds.highest)
    assert search.interval.low == reached(min(most)) and search.interval.high == reached(max(most))
    assert not search.surprises
    # Doubling up or halving down to the value, then halving the gap between: of all seeds, then of those that go on.
    assert len(rounds) <= 4 * (math.ceil(math.log2(bounds.highest)) + 1)
    together = [tried for tried in rounds if len(tried) == len(most)]
    assert all(len({value for value, _ in tried}) == 1 for tried in together[:1])


@given(bounds(), st.lists(st.integers(0, 400), min_size=1, max_size=4), st.integers(1, 16))
def test_idle_workers_save_rounds_and_change_no_answer(bounds: Bounds, most: list[int], workers: int):
    alone, rounds = searched(bounds, dict(enumerate(most)))
    tried, measured, batches = [], set(), 0
    while wanted := (search := Search(question(bounds, range(len(most))), tried)).wanted:
        if missing := set(wanted) - measured:
            ahead = [each for each in search.ahead if each not in measured]
            assert not {*ahead} & {*wanted} and len({*ahead}) == len(ahead)
            assert all(bounds.lowest <= value <= bounds.highest for value, _ in ahead)
            measured |= missing | set(ahead[: max(0, workers - len(missing))])
            batches += 1
        tried += met({seed: {value: value <= most[seed]} for value, seed in wanted})
    assert tried == alone.tried and batches <= len(rounds)
    if workers >= 3 * len(most) and len(rounds) > 1:
        assert batches < len(rounds)  # the value and both that may follow


@given(st.floats(0.02, 200), st.floats(0.01, 100))
def test_a_rate_is_found_as_closely_as_asked(most: float, first: float):
    search, rounds = searched(Bounds(0.01, 256, first, whole=False, close=50), {0: most})
    assert search.holds is not None and search.breaks is not None
    assert search.holds <= most < search.breaks
    assert search.breaks - search.holds <= 0.03 * search.holds  # 2 %, and three digits of a value between
    assert len(rounds) <= 30


def test_rates_that_three_digits_do_not_tell_apart_end_the_search():
    rates = Bounds(1.0, 256.0, 100.0, whole=False, close=EXACT)
    assert rates.following({100.0: True, 102.0: False}) == 101.0
    assert rates.following({100.0: True, 101.0: False}) is None  # between them is 100.5, shown as 100


def test_a_pass_above_a_failure_is_a_surprise_and_does_not_count():
    passed: dict[int, dict[float, bool]] = {0: {8: True, 16: False, 24: True}, 1: {8: True, 16: True, 24: True}}
    search = Search(question(WHOLE, passed), met(passed))
    assert search.holds == 8 and search.surprises == {0: (16, 24)}


def step(value: int, *values: tuple[float | None, float | None], error: str = "") -> Step:
    repeats = [Repeat(f"p{i}", pair, error if i == 0 else "") for i, pair in enumerate(values)]
    return judge(value, repeats, TARGETS)


def find(most: int = 20, up_to: int = 64, first: int = 8, bad: Mapping[int, int] = {}) -> tuple[Search, list[int]]:
    """At an endpoint that holds `most`, called by a generator that is late so many times at each number of `bad`."""
    tried: list[int] = []

    def measure(n: int, times: int = 1) -> Step:
        tried.append(n)
        if tried.count(n) <= bad.get(n, 0):
            return step(n, (n / most, 1.0), error="INVALID: late")
        return step(n, (n / most, 1.0), (n / most * 0.99, 1.0))

    return search(measure, calls(up_to, first)), tried


def ended(*steps: Step) -> Search:
    """The search after these steps."""
    result = Search(calls())
    for each in steps:
        result = result.with_step(each)
    return result


def stored(result: Search) -> Search:
    """As it is read from its file."""
    text = json.dumps(Searches(result.question, (result,)).as_dict())
    return Searches.from_dict(json.loads(text)).searched[0]


@given(most=st.integers(1, 300), up_to=st.integers(1, 256), first=st.integers(1, 64))
def test_a_search_ends_close_below_the_first_number_of_calls_that_breaks(most: int, up_to: int, first: int) -> None:
    found, tried = find(most, up_to, first)
    assert len(tried) == len(set(tried)) <= 8 + 8  # to double from 1 up to 256, and to halve the gap down to 1
    if most >= up_to:
        assert (found.holds, found.breaks) == (up_to, None)
        return
    holds = found.holds or 0  # None: not even one call holds
    assert found.breaks is not None and holds <= most < found.breaks
    assert found.breaks - holds <= max(1, holds // CLOSE)


def test_a_file_of_an_earlier_find_is_read() -> None:
    search, _ = searched(WHOLE, {0: 11, 1: 13})
    data = Searches(search.question, (search,)).as_dict()
    kept = ("engine", "settings", "tried")
    earlier = {name: value for name, value in data.items() if name != "counts"}
    earlier["searched"] = [{name: one[name] for name in kept} for one in data["searched"]]
    (loaded,) = Searches.from_dict(json.loads(json.dumps(earlier))).searched
    assert loaded.steps == search.steps and loaded.answer == search.answer


@pytest.mark.parametrize(
    ("most", "first", "tried"),
    [
        (50, 8, [8, 16, 32, 64, 48, 56]),  # it ends at 48 and 56: 56 - 48 <= 48 / 6
        (256, 8, [8, 16, 32, 64, 128, 256]),
        (3, 8, [8, 4, 2, 3]),
        (1, 2, [2, 1]),
    ],
)
def test_a_search_doubles_or_halves_and_then_halves_the_gap(most: int, first: int, tried: list[int]) -> None:
    assert find(most, 256, first)[1] == tried


@pytest.mark.parametrize(
    ("first", "second", "error", "verdict"),
    [
        ((1.0, 0.95), (0.8, 0.99), "", "passes"),  # at both bounds
        ((0.9, 0.99), (1.001, 0.99), "", "fails"),
        ((0.9, 0.99), (0.9, 0.949), "", "fails"),
        ((0.9, 0.99), (None, 0.99), "", "fails"),
        ((0.1, 1.0), (0.9, 0.99), "INVALID: late", "invalid"),
        ((0.1, 1.0), (1.9, 0.99), "INVALID: late", "fails"),
    ],
)
def test_one_bad_repeat_fails_a_number_and_a_late_generator_leaves_it_unmeasured(
    first: tuple, second: tuple, error: str, verdict: str
) -> None:
    """TTFP and continuity of two repeats; the error is of the first. The targets are 1 s at most, 0.95 at least."""
    assert step(8, first, second, error=error).verdict == verdict


def test_the_answer_is_a_sentence() -> None:
    capacity = ended(step(48, (0.78, 0.99), (0.84, 0.994), (0.81, 0.992)), step(56, (1.3, 0.97), (1.2, 0.96)))
    assert capacity.answer == (
        "can handle 48 calls: P90 TTFP 810 ms (780–840) ≤ 1,000 ms, continuity 99.2 % (99–99.4) ≥ 95 %; "
        "at 56 P90 TTFP 1,250 ms (1,200–1,300)."
    )
    assert ended(step(1, (math.inf, 0.2))).answer == ("cannot handle even 1 call: P90 TTFP ∞, continuity 20 %.")
    assert ended(step(64, (0.5, 1.0))).answer.startswith("can handle at least 64 calls, the most that were tried")


PASSES, FAILS, LATE = (0.5, 1.0), (2.0, 1.0), "INVALID: late"


@pytest.mark.parametrize(
    ("steps", "verdict", "begin", "end"),
    [
        ([(8, PASSES), (16, LATE)], ("INCONCLUSIVE", 8, None, 16), "can handle at least 8 calls", f"({LATE})."),
        ([(8, PASSES), (16, LATE), (32, FAILS)], ("INCONCLUSIVE", 8, 32, 16), "can handle", "at 32 P90 TTFP 2,000 ms."),
        ([(16, LATE)], ("INCONCLUSIVE", None, None, 16), "was not measured at any number: at 16 calls", "."),
        # A file of an earlier version went on past what it could not measure, and found the answer below it.
        ([(8, PASSES), (12, FAILS), (16, LATE)], ("PASS", 8, 12, None), "can handle 8 calls", "."),
        ([(1, FAILS)], ("FAIL", None, 1, None), "cannot handle even 1 call", "."),
    ],
)
def test_what_could_not_be_measured_neither_holds_nor_breaks(steps: list, verdict: tuple, begin: str, end: str) -> None:
    found = ended(*(step(n, PASSES, error=LATE) if value == LATE else step(n, value) for n, value in steps))
    assert (found.verdict, found.holds, found.breaks, found.unmeasured) == verdict
    assert found.answer.startswith(begin)
    assert found.answer.endswith(end)


def test_a_number_that_stays_undecided_is_measured_twice_and_does_not_count() -> None:
    tried: list[tuple[int, int]] = []

    def measure(n: int, times: int) -> Step:
        tried.append((n, times))
        verdict = "passes" if n <= 16 else "fails" if n >= 20 else "undecided"
        return replace(step(n, (n / 20, 1.0)), verdict=verdict)

    capacity = search(measure, calls(first=16, counts="user"))
    assert tried == [(16, 1), (32, 1), (24, 1), (20, 1), (18, 1), (18, 2)]
    assert (capacity.verdict, capacity.holds, capacity.undecided, capacity.breaks) == ("PASS", 16, [18], 20)
    assert capacity.answer.startswith("can handle 16 users: P90 TTFP 800 ms")
    assert capacity.answer.endswith("; 18: INCONCLUSIVE; at 20 it could not be measured (no value).")
    assert ended(replace(capacity.steps[1], value=1)).verdict == "INCONCLUSIVE"


@given(st.dictionaries(st.integers(1, 64), st.integers(0, 2 * AGAIN), max_size=20))
def test_no_search_counts_what_it_could_not_measure_as_missed(bad: dict[int, int]) -> None:
    capacity, tried = find(bad=bad)
    never = {n for n, times in bad.items() if times > AGAIN}
    assert all(tried.count(n) <= 1 + AGAIN for n in tried)
    assert (capacity.verdict == "INCONCLUSIVE") == bool(never & set(tried))
    assert capacity.unmeasured in {*never, None} and (capacity.holds or 0) <= 20
    assert capacity.breaks is None or capacity.breaks > 20
    if capacity.verdict == "INCONCLUSIVE":
        assert tried[-1] == capacity.unmeasured and capacity.holds not in never
    assert stored(capacity) == capacity


@pytest.mark.parametrize(("failed", "text"), [(0.0, ""), (0.005, ", failed turns 0.5 % ≤ 1 %")])
def test_failed_turns_are_named_only_where_there_are_some(failed: float, text: str) -> None:
    targets, bounds = parse_targets("ttfp_p90<=1.0 failed<=1%"), Bounds(8, 8, 8, whole=True, close=CLOSE)
    found = Search(Question("c", targets, bounds, (0,), "call"), [Tried(8, 0, Repeat("p", (0.5, failed)))])
    expected = f"can handle at least 8 calls, the most that were tried: P90 TTFP 500 ms ≤ 1,000 ms{text}."
    assert found.answer == expected
