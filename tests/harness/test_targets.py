"""Targets: parsed from words with units, and what a metric is where turns failed."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import harness.kinds  # noqa: F401  (a metric of duplex calls is known once their kind is)
from harness.slo.targets import Target, judged_value, parse_targets
from workloads.errors import UserError


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
    assert parse_targets("ttfp_p90 <= 1.0, continuity>=95% send_delay_p99<=0.01") == (
        Target("audio_ttfp_p90", "<=", 1.0),
        Target("continuity", ">=", 0.95),
        Target("send_delay_p99", "<=", 0.01),
    )
