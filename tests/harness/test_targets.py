"""Targets: parsed from words with units, and judged where turns failed."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import harness.kinds  # noqa: F401  (a metric of duplex calls is known once their kind is)
from harness.live.live_slo import Asked, counted_as, default_targets, with_failures
from harness.metrics.metric import statistic
from harness.metrics.metric_name import parsed
from harness.slo.targets import Target, number, parse_targets, turn_values
from tests.builders import refused
from workloads.errors import UserError


def test_turns_that_failed_are_infinitely_late_also_after_their_first_sound() -> None:
    ttfp_s = np.linspace(0.1, 2, 20)
    requests = pd.DataFrame({"spoken": True, "status": "completed", "audio_ttfp_s": ttfp_s, "packets": 3})
    assert judged("audio_ttfp_p90", requests) == pytest.approx(1.81)
    requests.loc[15:, "status"] = "failed"
    assert judged("audio_ttfp_p90", requests) == judged("audio_ttfp_mean", requests) == math.inf
    # Between the 10th and the 11th of 20
    assert judged("audio_ttfp_p50", requests) == pytest.approx(1.05)
    assert turn_values("continuity", requests) is None


def test_a_turn_without_a_latency_is_late_only_if_it_failed() -> None:
    # The second reply began early, the third had no sound, the fourth never ended.
    status = ["completed", "completed", "completed", "unfinished", "barged_in"]
    ttfp_s = [0.2, math.nan, math.nan, math.nan, 0.3]
    requests = pd.DataFrame({"spoken": True, "status": status, "audio_ttfp_s": ttfp_s, "packets": [5, 5, 0, 0, 2]})
    values = turn_values("audio_ttfp_p50", requests)
    assert values is not None and values.tolist() == [0.2, math.inf, math.inf, 0.3]


def judged(metric: str, requests: pd.DataFrame) -> float | None:
    values = turn_values(metric, requests)
    assert values is not None
    return statistic(values, parsed(metric).statistic)[0]


def test_a_share_of_failed_turns_is_the_only_meaning_of_failed() -> None:
    for text in ("failed<=5%", "failed <= 0.05", "failed_share<=5%"):
        (target,) = parse_targets(text)
        assert target == Target("failed_share", "<=", 0.05) and str(target) == "failed turns ≤ 5 %"
    with pytest.raises(UserError, match=r"--find failed<=3: 3 % or 3 times the whole\? Write failed<=3%"):
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
def test_a_bound_that_nobody_means_is_refused_with_a_question(name: str, bound: float) -> None:
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


@pytest.mark.parametrize("what", ["voice", "text", "open microphones", "frames"])
def test_every_service_has_default_targets_of_which_the_last_is_of_failures(what: str) -> None:
    targets = default_targets(what)
    assert len(targets) > 1
    assert str(targets[-1]) == "failed turns ≤ 1 %"


@pytest.mark.parametrize(
    ("what", "axis", "unit"), [("text", "rate", "request"), ("text", "c", "user"), ("voice", "rate", "call")]
)
def test_a_load_is_counted_in_requests_users_or_calls(what: str, axis: str, unit: str) -> None:
    assert counted_as(what, axis) == unit


def test_failures_have_a_default_target_where_no_other_is_of_them() -> None:
    fast, (few,) = parse_targets("ttfp_p90<=1s"), parse_targets("failed<=5%")
    assert with_failures((*fast, few)) == (*fast, few)
    assert with_failures(fast) == (*fast, Target("failed_share", "<=", 0.01))
    assert default_targets(None) == ()


@pytest.mark.parametrize("given", [True, False])
def test_targets_are_kept_with_the_results_and_damaged_ones_are_refused(tmp_path: Path, given: bool) -> None:
    asked = Asked(parse_targets("ttfp_p90<=1s continuity>=95%"), given)
    assert Asked.read(tmp_path) is None
    asked.write(tmp_path, {"verdict": "PASS"})
    path = tmp_path / "verdict.json"
    kept = json.loads(path.read_text())
    assert kept["asked"]["targets"][0] == {"metric": "audio_ttfp_p90", "op": "<=", "bound": 1.0}
    assert (kept["schema_version"], kept["verdict"]) == (1, "PASS")
    assert Asked.read(tmp_path) == asked
    for damaged in ("[]", '{"asked": {"targets": []}}', '{"asked": {"targets": [1], "given": true}}', "{"):
        path.write_text(damaged)
        with refused(f"{path} is damaged; delete it, and give --slo again."):
            Asked.read(tmp_path)
