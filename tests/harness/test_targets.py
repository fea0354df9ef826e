"""Targets: parsed from words with units, and what a metric is where turns failed."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import harness.kinds  # noqa: F401  (a metric of duplex calls is known once their kind is)
from harness.metrics.metric import statistic
from harness.metrics.metric_name import parsed
from harness.slo.targets import Target, number, parse_targets, turn_values
from workloads.errors import UserError


def test_turns_that_failed_are_infinitely_late_also_after_their_first_sound() -> None:
    n = 20
    requests = pd.DataFrame(
        {
            "spoken": [True] * n,
            "status": ["completed"] * n,
            "audio_ttfp_s": np.linspace(0.1, 2, n),
            "packets": [3] * n,
        }
    )
    assert judged("audio_ttfp_p90", requests) == pytest.approx(1.81)
    requests.loc[15:, "status"] = "failed"
    assert judged("audio_ttfp_p90", requests) == math.inf
    # Between the 10th and the 11th of 20
    assert judged("audio_ttfp_p50", requests) == pytest.approx(1.05)
    assert judged("audio_ttfp_mean", requests) == math.inf
    assert turn_values("continuity", requests) is None


def test_a_turn_without_a_latency_is_late_only_if_it_failed() -> None:
    requests = pd.DataFrame(
        {
            "spoken": True,
            "status": ["completed", "completed", "completed", "unfinished", "barged_in"],
            "audio_ttfp_s": [0.2, math.nan, math.nan, math.nan, 0.3],
            "packets": [5, 5, 0, 0, 2],
        }
    )
    # The second reply began early, the third had no sound, the fourth never ended.
    assert turn_values("audio_ttfp_p50", requests).tolist() == [0.2, math.inf, math.inf, 0.3]


def judged(metric: str, requests: pd.DataFrame) -> float | None:
    return statistic(turn_values(metric, requests), parsed(metric).statistic)[0]


def test_a_share_of_failed_turns_is_the_only_meaning_of_failed() -> None:
    for text in ("failed<=5%", "failed <= 0.05", "failed_share<=5%"):
        (target,) = parse_targets(text)
        assert target == Target("failed_share", "<=", 0.05) and str(target) == "failed turns ≤ 5 %"
    with pytest.raises(UserError, match=r"failed<=3: 3 % or 3 times the whole\? Write failed<=3%"):
        parse_targets("failed<=3")


TIMES, SHARES = ("ttfp_p90", "tbt_p50", "e2e_p90", "send_delay_p99"), ("continuity", "on_time", "takeover")


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
    assert parse_targets("ttfp_p90 <= 1.0, continuity>=95% send_delay_p99.9<=0.01") == (
        Target("audio_ttfp_p90", "<=", 1.0),
        Target("continuity", ">=", 0.95),
        Target("send_delay_p99.9", "<=", 0.01),
    )


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("audio_ttfp_p90", 0.0994, "99.4 ms"),
        ("audio_ttfp_p90", 0.1004, "100 ms"),
        ("audio_ttfp_p90", 1.2346, "1,235 ms"),
        ("audio_ttfp_p90", math.inf, "∞"),
        ("makespan", 12.346, "12.3 s"),
        ("continuity", 0.95, "95 %"),
        ("continuity", 0.954, "95.4 %"),
        ("completed_rps", 12.5, "12.5 1/s"),
        ("started", 7.0, "7"),
    ],
)
def test_a_value_is_written_in_the_unit_of_targets(metric: str, value: float, text: str) -> None:
    assert number(metric, value) == text
    assert number(metric, value, unit=False) == text.partition(" ")[0]
