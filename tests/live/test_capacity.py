"""The largest number of calls that meets every target, found with few runs and told in a sentence."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import harness.kinds  # noqa: F401  (a metric of duplex calls is known once their kind is)
from harness.live.capacity import AGAIN, CLOSE, Capacity, Step, answer, as_dict, from_dict, judge, search
from harness.slo.targets import Repeat, Target, judged_value, parse_targets
from workloads.errors import UserError

TARGETS = parse_targets("ttfp_p90<=1.0 continuity>=0.95")


def step(sessions: int, *values: tuple[float | None, float | None], error: str = "") -> Step:
    repeats = [Repeat(f"p{i}", pair, error if i == 0 else "") for i, pair in enumerate(values)]
    return judge(sessions, repeats, TARGETS)


def find(most: int, up_to: int = 256, first: int = 8) -> tuple[Capacity, list[int]]:
    tried: list[int] = []

    def measure(n: int, times: int = 1) -> Step:
        tried.append(n)
        return step(n, (n / most, 1.0), (n / most * 0.99, 1.0))

    return search(measure, TARGETS, up_to, first), tried


@given(most=st.integers(1, 300), up_to=st.integers(1, 256), first=st.integers(1, 64))
def test_the_search_brackets_the_capacity(most: int, up_to: int, first: int) -> None:
    capacity, tried = find(most, up_to, first)
    assert len(tried) == len(set(tried)) <= 2 * math.ceil(math.log2(256)) and max(tried) <= up_to
    if most >= up_to:
        assert (capacity.holds, capacity.breaks) == (up_to, None)
    else:
        assert capacity.breaks is not None and capacity.breaks > most
        holds = capacity.holds or 0
        assert holds <= most and capacity.breaks - holds <= max(1, holds // CLOSE)
    assert from_dict(json.loads(json.dumps(as_dict(capacity)))) == capacity


def test_doubling_then_halving() -> None:
    assert find(50)[1] == [8, 16, 32, 64, 48, 56]
    assert find(3)[1] == [8, 4, 2, 3]
    assert find(256)[1] == [8, 16, 32, 64, 128, 256]
    assert find(1, first=2)[1] == [2, 1]


def test_one_bad_repeat_fails_a_number_and_one_late_generator_leaves_it_unmeasured() -> None:
    assert step(8, (0.9, 0.99), (0.8, 0.95)).verdict == "passes"
    assert step(8, (0.9, 0.99), (1.1, 0.99)).verdict == "fails"
    assert step(8, (0.9, 0.99), (None, 0.99)).verdict == "fails"
    assert step(8, (0.1, 1.0), (0.9, 0.99), error="INVALID: late").verdict == "invalid"
    assert step(8, (0.1, 1.0), (1.9, 0.99), error="INVALID: late").verdict == "fails"


def test_the_answer_is_a_sentence() -> None:
    capacity = Capacity(
        TARGETS,
        (step(48, (0.78, 0.99), (0.84, 0.994), (0.81, 0.992)), step(56, (1.3, 0.97), (1.2, 0.96))),
        64,
    )
    assert answer(capacity) == (
        "can handle 48 calls: P90 TTFP 810 ms (780–840) ≤ 1,000 ms, continuity 99.2 % (99–99.4) ≥ 95 %; "
        "at 56 P90 TTFP 1,250 ms (1,200–1,300)."
    )
    assert answer(Capacity(TARGETS, (step(1, (math.inf, 0.2)),), 64)) == (
        "cannot handle even 1 call: P90 TTFP ∞, continuity 20 %."
    )
    assert answer(Capacity(TARGETS, (step(64, (0.5, 1.0)),), 64)).startswith(
        "can handle at least 64 calls, the most that were tried"
    )


def test_what_could_not_be_measured_is_neither_held_nor_missed() -> None:
    late = Capacity(TARGETS, (step(8, (0.5, 1.0)), step(16, (0.5, 1.0), error="INVALID: slip")), 64)
    assert (late.verdict, late.holds, late.breaks, late.unmeasured) == ("INCONCLUSIVE", 8, None, 16)
    assert answer(late).startswith("can handle at least 8 calls, the most that passed: ")
    assert answer(late).endswith("at 16 it could not be measured (INVALID: slip).")
    between = Capacity(TARGETS, (*late.steps, step(32, (2.0, 1.0))), 64)
    assert (between.verdict, between.breaks, between.unmeasured) == ("INCONCLUSIVE", 32, 16)
    assert answer(between).endswith("(INVALID: slip); at 32 P90 TTFP 2,000 ms.")
    never = Capacity(TARGETS, late.steps[1:], 64)
    assert never.verdict == "INCONCLUSIVE" and answer(never).startswith(
        "was not measured at any number: at 16 calls "
    )
    # A search of an earlier version went on past what it could not measure, and may have found the answer below it.
    found = Capacity(TARGETS, (step(8, (0.5, 1.0)), step(12, (2.0, 1.0)), *late.steps[1:]), 64)
    assert (found.verdict, found.breaks, found.unmeasured) == ("PASS", 12, None)
    assert Capacity(TARGETS, (step(1, (2.0, 1.0)),), 64).verdict == "FAIL"


def test_a_number_that_stays_undecided_is_measured_twice_and_does_not_count() -> None:
    tried: list[tuple[int, int]] = []

    def measure(n: int, times: int) -> Step:
        tried.append((n, times))
        found = "passes" if n <= 16 else "fails" if n >= 20 or (n, times) == (19, 2) else "undecided"
        return replace(step(n, (n / 20, 1.0)), verdict=found)

    capacity = search(measure, TARGETS, 64, 16, "user")
    assert tried == [(16, 1), (32, 1), (24, 1), (20, 1), (18, 1), (18, 2)]
    assert (capacity.verdict, capacity.holds, capacity.undecided, capacity.breaks) == ("PASS", 16, [18], 20)
    assert answer(capacity).startswith("can handle 16 users: P90 TTFP 800 ms")
    assert answer(capacity).endswith("; 18: INCONCLUSIVE; at 20 it could not be measured (no value).")
    assert Capacity(TARGETS, (replace(capacity.steps[1], sessions=1),), 64).verdict == "INCONCLUSIVE"


def searched(bad: dict[int, int]) -> tuple[Capacity, list[int]]:
    """An endpoint that holds 20, called by a generator that is late so many times at each number of `bad`."""
    tried: list[int] = []

    def measure(n: int, times: int = 1) -> Step:
        tried.append(n)
        late = "INVALID: late" if tried.count(n) <= bad.get(n, 0) else ""
        return step(n, (n / 20, 1.0), error=late)

    return search(measure, TARGETS, 64), tried


def test_a_number_that_could_not_be_measured_is_tried_again() -> None:
    capacity, tried = searched({16: 1, 24: AGAIN})
    assert (capacity.verdict, capacity.holds, capacity.breaks) == ("PASS", 20, 22)
    assert tried == [8, 16, 16, 32, *[24] * (1 + AGAIN), 20, 22]


@given(st.dictionaries(st.integers(1, 64), st.integers(0, 2 * AGAIN), max_size=20))
def test_no_search_counts_what_it_could_not_measure_as_missed(bad: dict[int, int]) -> None:
    capacity, tried = searched(bad)
    never = {n for n, times in bad.items() if times > AGAIN}
    assert all(tried.count(n) <= 1 + AGAIN for n in tried)
    assert (capacity.verdict == "INCONCLUSIVE") == bool(never & set(tried))
    assert capacity.unmeasured in {*never, None} and (capacity.holds or 0) <= 20
    assert capacity.breaks is None or capacity.breaks > 20
    if capacity.verdict == "INCONCLUSIVE":
        assert tried[-1] == capacity.unmeasured and capacity.holds not in never
    assert from_dict(json.loads(json.dumps(as_dict(capacity)))) == capacity
    earlier = {n: value for n, value in as_dict(capacity).items() if n not in ("verdict", "unmeasured")}
    assert from_dict(json.loads(json.dumps(earlier))) == capacity


def test_turns_that_failed_are_infinitely_late() -> None:
    n = 20
    requests = pd.DataFrame(
        {"spoken": [True] * n, "status": ["completed"] * n, "audio_ttfp_s": np.linspace(0.1, 2, n)}
    )
    metrics = {
        "audio_ttfp_p90": {"value": 0.5, "n": n, "missing": 0},
        "audio_ttfp_mean": {"value": 1, "n": n, "missing": 1},
    }
    assert judged_value("audio_ttfp_p90", metrics, requests) == 0.5  # nothing is missing: as it was measured
    requests.loc[15:, "audio_ttfp_s"] = np.nan
    metrics["audio_ttfp_p90"]["missing"] = 5
    assert judged_value("audio_ttfp_p90", metrics, requests) == math.inf
    metrics["audio_ttfp_p50"] = {"value": 0.1, "n": 15, "missing": 5}
    # Between the 10th and the 11th of 20
    assert judged_value("audio_ttfp_p50", metrics, requests) == pytest.approx(1.05)
    assert judged_value("audio_ttfp_mean", metrics, requests) == math.inf
    assert judged_value("continuity", metrics, requests) is None


TIMES, SHARES = ("ttfp_p90", "tbt_p50", "e2e_p90", "send_slip_p99"), ("continuity", "on_time", "takeover")


@given(st.sampled_from(TIMES), st.integers(1, 10_000))
def test_a_time_is_the_same_in_every_unit(name: str, ms: int) -> None:
    (target,) = parse_targets(f"{name}<={ms}ms")
    for text in (f"{ms / 1000}s", f"{ms} ms", f"{ms / 1000:g}", f"{ms / 1000:.6f} s"):
        (other,) = parse_targets(f"{name} <= {text}")
        assert other.bound == pytest.approx(target.bound)
    assert target.bound == ms / 1000 and str(target).endswith(f" ≤ {ms:,} ms")


@given(st.sampled_from(SHARES), st.integers(0, 1000))
def test_a_share_is_the_same_in_every_unit(name: str, permille: int) -> None:
    op = "<=" if name == "takeover" else ">="
    (target,) = parse_targets(f"{name}{op}{permille / 10}%")
    (other,) = parse_targets(f"{name}{op}{permille / 1000}")
    assert target.bound == pytest.approx(other.bound) == pytest.approx(permille / 1000)
    assert str(target).endswith(f" {permille / 10:g} %")


@given(st.sampled_from([*TIMES, *SHARES]), st.floats(10.001, 1e6))
def test_what_cannot_be_meant_is_asked_back(name: str, bound: float) -> None:
    op = "<=" if name in TIMES or name == "takeover" else ">="
    with pytest.raises(UserError, match=r"\? (Write|A share is 100 % at most)"):
        parse_targets(f"{name}{op}{bound:f}")


def test_targets_are_parsed() -> None:
    assert parse_targets("ttfp_p90 <= 1.0, continuity>=95% send_slip_p99<=0.01") == (
        Target("audio_ttfp_p90", "<=", 1.0),
        Target("continuity", ">=", 0.95),
        Target("send_slip_p99", "<=", 0.01),
    )
