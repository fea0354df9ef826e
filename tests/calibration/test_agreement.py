import numpy as np
import pandas as pd
import pytest

from harness.calibration.fidelity_report import (
    LATENCIES,
    Agreement,
    agreement,
    by_turn,
    canary_of,
    judge_mechanics,
    judge_prediction,
    moved,
)

TPOT_S = [0.005 + 0.0001 * i for i in range(100)]


def table(tpot_s: list[float], e2e_s: list[float] | None = None) -> pd.DataFrame:
    """Latencies of single turns, as `by_turn` gives them."""
    index = pd.MultiIndex.from_arrays([range(len(tpot_s)), [0] * len(tpot_s)], names=["session", "turn"])
    e2e_s = e2e_s or [100 * each for each in tpot_s]
    return pd.DataFrame({"tpot": tpot_s, "e2e": e2e_s, "ttft": [5 * each for each in tpot_s]}, index=index)


def compared(tpot_s: list[float], steps: int = 1000) -> Agreement:
    """A run with these latencies next to one of 1,000 steps with `TPOT_S`."""
    return agreement(table(TPOT_S), table(tpot_s), reference_steps=1000, other_steps=steps)


def scaled(factor: float, steps: int = 1000) -> Agreement:
    return compared([factor * each for each in TPOT_S], steps)


@pytest.mark.parametrize("factor", [0.9, 1.0, 1.03])
def test_a_run_that_is_slower_by_a_factor_has_that_error_in_every_request(factor: float):
    found = scaled(factor)
    for errors in (found.errors(name) for name in LATENCIES):
        assert errors.median == errors.p90 == errors.p99 == pytest.approx(abs(factor - 1), abs=1e-9)
        assert errors.aggregate_p50 == pytest.approx(factor - 1, abs=1e-9)
    assert (found.requests, found.unpaired, found.step_error) == (100, 0, 0)


def test_requests_are_paired_by_session_and_turn_in_any_order():
    shuffled = table(TPOT_S).sample(frac=1, random_state=0)
    assert agreement(shuffled, table(TPOT_S), 10, 10) == agreement(table(TPOT_S), table(TPOT_S), 10, 10)


def test_requests_of_only_one_run_are_counted_and_not_compared():
    found = compared(TPOT_S[:90])
    assert (found.requests, found.unpaired, found.tpot.median) == (90, 10, 0)
    with pytest.raises(ValueError, match="no completed request in common"):
        compared([])


def test_a_reply_of_one_token_has_an_e2e_and_no_tpot():
    one = table([float("nan"), 0.010], e2e_s=[0.1, 1.0])
    other = table([float("nan"), 0.011], e2e_s=[0.2, 1.0])
    found = agreement(one, other, 5, 5)
    assert found.tpot.median == pytest.approx(0.1)
    assert found.e2e.median == pytest.approx(0.5)  # between 0.2 / 0.1 - 1 and 0


def test_only_completed_turns_are_compared():
    requests = pd.DataFrame({"session": [0, 1], "turn": 0, "status": ["completed", "failed"]})
    assert by_turn(requests.assign(tbt_mean_s=0.1, e2e_s=1.0, ttft_s=0.2)).index.tolist() == [(0, 0)]


def slow_tail(factor: float) -> Agreement:
    """15 of 100 requests are slower."""
    return compared([each * (factor if i >= 85 else 1.0) for i, each in enumerate(TPOT_S)])


@pytest.mark.parametrize(
    ("run", "broken"),
    [
        (scaled(1.02), None),  # 2 % in the median
        (scaled(1.021), "TPOT median 2.1 %, above 2.0 %"),
        (scaled(0.979), "TPOT median 2.1 %, above 2.0 %"),
        (slow_tail(1.05), None),  # 5 % in P90
        (slow_tail(1.051), "TPOT P90 5.1 %, above 5.0 %"),
        (scaled(1.0, steps=1009), None),  # 1 % of the steps
        (scaled(1.0, steps=1011), "1011 steps instead of 1000"),
        (compared([*TPOT_S, 0.01]), None),  # 1 % of the requests
        (compared([*TPOT_S, 0.01, 0.01]), "2 requests completed in only one of the two"),
    ],
)
def test_mechanics_fail_when_one_run_breaks_one_limit(run: Agreement, broken: str | None):
    verdict = judge_mechanics([scaled(1.0), run])
    assert verdict.result == ("fail" if broken else "pass")
    assert broken is None or f"run 2: {broken}" in verdict.why


@pytest.mark.parametrize(
    ("error", "noise", "canary", "result"),
    [
        (0.100, 1.026, 1.0, "pass"),  # the aim is 10 % when the machine moved by more than 2.5 %
        (0.101, 1.026, 1.0, "miss"),
        (0.050, 1.025, 1.0, "pass"),  # and 5 % when it kept still
        (0.051, 1.025, 1.0, "miss"),
        (0.000, 1.100, 1.0, "pass"),
        (0.000, 1.101, 1.0, "void"),  # the machine moved by more than 10 %
        (0.500, 0.899, 1.0, "void"),
        (0.000, 1.000, 1.101, "void"),
        (0.000, 1.000, 0.899, "void"),
    ],
)
def test_a_prediction_passes_misses_or_is_void(error: float, noise: float, canary: float, result: str):
    verdict = judge_prediction([scaled(1 + error), scaled(1.0)], moved(scaled(noise), canary))
    assert verdict.result == result, verdict.why


def scattered(share: float) -> Agreement:
    """Every request is off by this share; half of them are faster and half slower."""
    return compared([each * (1 + share if i % 2 else 1 - share) for i, each in enumerate(TPOT_S)])


def test_a_miss_says_whether_the_level_or_single_requests_were_wrong():
    still = moved(scaled(1.0), 1.0)
    assert "level: machine or clients" in judge_prediction([scaled(1.12)], still).why
    verdict = judge_prediction([scattered(0.12)], still)
    assert verdict.result == "miss" and "scatter" in verdict.why


def test_noise_of_single_requests_voids_although_the_aggregate_repeats():
    noise = scattered(0.2)
    assert abs(noise.tpot.aggregate_p50) <= 0.1
    verdict = judge_prediction([scaled(1.0)], moved(noise, 1.0))
    assert verdict.result == "void" and "single requests" in verdict.why


def test_a_drifting_canary_has_a_spread_and_one_outlier_has_none():
    at_s = np.arange(100) / 2
    still = canary_of(at_s, [0.004] * 99 + [0.1], run_s=50.0)
    assert (still.median_s, still.spread) == (0.004, 0)
    assert still.share == pytest.approx((99 * 0.004 + 0.1) / 50)
    # Medians of ten stretches rise evenly from 1.02 to 1.47 times 4 ms; P90 over P10 is 1.426 / 1.07.
    assert canary_of(at_s, 0.004 * (1 + at_s / 100), run_s=50.0).spread == pytest.approx(0.336, abs=0.003)
    with pytest.raises(ValueError, match="never ran"):
        canary_of([], [], run_s=1.0)
