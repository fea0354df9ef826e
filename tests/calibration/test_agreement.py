"""Errors and verdicts on made data, and what a run's two logs say a step cost."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.calibration.fidelity_report import (
    AIM,
    AIM_QUIET,
    LATENCIES,
    Agreement,
    agreement,
    by_turn,
    canary_of,
    judge_mechanics,
    judge_prediction,
    moved,
)


def table(tpot: list[float], e2e: list[float] | None = None) -> pd.DataFrame:
    """Latencies (s) of single turns, as `by_turn` gives them."""
    index = pd.MultiIndex.from_arrays([range(len(tpot)), [0] * len(tpot)], names=["session", "turn"])
    e2e = [100 * value for value in tpot] if e2e is None else e2e
    return pd.DataFrame({"tpot": tpot, "e2e": e2e, "ttft": [5 * value for value in tpot]}, index=index)


SOME = [0.005 + 0.0001 * i for i in range(100)]


def scaled(factor: float, steps: int = 1000) -> Agreement:
    return agreement(table(SOME), table([factor * value for value in SOME]), 1000, steps)


@pytest.mark.parametrize("factor", [0.9, 1.0, 1.03])
def test_errors_of_a_run_that_is_slower_by_a_factor(factor: float):
    found = scaled(factor)
    for errors in (found.errors(name) for name in LATENCIES):
        assert errors.median == errors.p90 == errors.p99 == pytest.approx(abs(factor - 1), abs=1e-9)
        assert errors.aggregate_p50 == pytest.approx(factor - 1, abs=1e-9)
    assert (found.requests, found.unpaired, found.step_error) == (100, 0, 0)


PAIRS = st.lists(st.tuples(st.floats(1e-3, 1.0), st.floats(0.5, 2.0)), min_size=2, max_size=30)
"""Requests: TPOT of the reference (s), and the factor by which the other run differs."""


def two_runs(pairs: list[tuple[float, float]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    return table([tpot_s for tpot_s, _ in pairs]), table([tpot_s * factor for tpot_s, factor in pairs])


@given(PAIRS)
def test_a_higher_percentile_of_errors_is_never_smaller(pairs: list[tuple[float, float]]):
    found = agreement(*two_runs(pairs), reference_steps=10, other_steps=10)
    for errors in (found.errors(name) for name in LATENCIES):
        assert errors.median <= errors.p90 <= errors.p99


@given(PAIRS, st.integers(0, 2**32 - 1))
def test_errors_do_not_depend_on_the_order_of_requests(pairs: list[tuple[float, float]], seed: int):
    reference, other = two_runs(pairs)
    shuffled = reference.sample(frac=1, random_state=seed)
    assert agreement(shuffled, other, 10, 10) == agreement(reference, other, 10, 10)


def test_requests_that_only_one_run_completed_are_counted_and_not_compared():
    found = agreement(table(SOME), table(SOME[:90]), 1000, 1000)
    assert (found.requests, found.unpaired, found.tpot.median) == (90, 10, 0)
    assert judge_mechanics([found]).result == "fail"
    with pytest.raises(ValueError, match="no completed request in common"):
        agreement(table(SOME).iloc[:0], table(SOME), 1000, 1000)


def test_a_reply_of_one_token_has_no_tpot_and_still_an_e2e():
    one = table([float("nan"), 0.01], e2e=[0.1, 1.0])
    assert agreement(one, table([float("nan"), 0.011], e2e=[0.2, 1.0]), 5, 5).tpot.median == pytest.approx(0.1)


def test_only_completed_turns_are_compared():
    requests = pd.DataFrame({"session": [0, 1], "turn": 0, "status": ["completed", "failed"]})
    assert by_turn(requests.assign(tbt_mean_s=0.1, e2e_s=1.0, ttft_s=0.2)).index.tolist() == [(0, 0)]


@pytest.mark.parametrize(
    ("factor", "steps", "result"),
    [(1.0, 1000, "pass"), (1.019, 1009, "pass"), (1.021, 1000, "fail"), (0.9, 1000, "fail"), (1.0, 1011, "fail")],
)
def test_mechanics_keeps_every_limit_or_fails(factor: float, steps: int, result: str):
    assert judge_mechanics([scaled(1.0), scaled(factor, steps)]).result == result


def test_mechanics_fails_by_its_tail_alone_and_says_so():
    slow = [value * (1.06 if i >= 85 else 1.0) for i, value in enumerate(SOME)]
    verdict = judge_mechanics([agreement(table(SOME), table(slow), 1000, 1000)])
    assert verdict.result == "fail" and "TPOT P90 6.0 %" in verdict.why and "median" not in verdict.why


@pytest.mark.parametrize(
    ("error", "noise", "canary", "result"),
    [
        (0.06, 1.05, 1.0, "pass"),  # within the aim of a shared machine
        (0.12, 1.05, 1.0, "miss"),
        (0.06, 1.00, 1.0, "miss"),  # the machine kept still, and 5 % are asked of it
        (0.04, 1.00, 1.0, "pass"),
        (0.00, 1.15, 1.0, "void"),  # however good it looks
        (0.50, 0.85, 1.0, "void"),
        (0.00, 1.00, 1.12, "void"),
        (0.00, 1.00, 0.88, "void"),
    ],
)
def test_a_prediction_passes_misses_or_is_void(error: float, noise: float, canary: float, result: str):
    verdict = judge_prediction([scaled(1 + error), scaled(1.0)], moved(scaled(noise), canary))
    assert verdict.result == result, verdict.why
    assert AIM_QUIET < AIM


def test_a_miss_says_whether_the_level_or_single_requests_were_wrong():
    still = moved(scaled(1.0), 1.0)
    assert "level: machine or clients" in judge_prediction([scaled(1.12)], still).why
    apart = table([value * (1.12 if i % 2 else 0.88) for i, value in enumerate(SOME)])
    verdict = judge_prediction([agreement(table(SOME), apart, 1000, 1000)], still)
    assert verdict.result == "miss" and "scatter" in verdict.why


def test_noise_of_single_requests_voids_although_the_aggregate_repeats():
    apart = [value * (1.2 if i % 2 else 0.8) for i, value in enumerate([0.01] * 100)]
    noise = agreement(table([0.01] * 100), table(apart), 10, 10)
    assert abs(noise.tpot.aggregate_p50) <= 0.01
    verdict = judge_prediction([scaled(1.0)], moved(noise, 1.0))
    assert verdict.result == "void" and "single requests" in verdict.why


def test_a_canary_that_drifts_has_a_spread_and_one_outlier_has_none():
    at_s = np.arange(100) / 2
    still = canary_of(at_s.tolist(), [0.004] * 99 + [0.1], 50.0)
    assert (still.median_s, still.spread) == (0.004, 0)
    drifting = canary_of(at_s.tolist(), (0.004 * (1 + at_s / 100)).tolist(), 50.0)
    assert drifting.spread == pytest.approx(0.36, abs=0.03)
    with pytest.raises(ValueError, match="never ran"):
        canary_of([], [], 1.0)
