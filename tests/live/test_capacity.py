"""The largest number of calls that meets every target, found with few runs and told in a sentence."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rehearsal.harness.live.capacity import CLOSE, Capacity, Step, answer, as_dict, from_dict, judge, search
from rehearsal.harness.targets import Repeat, Target, judged_value, parse_targets
from rehearsal.workloads.errors import UserError

TARGETS = parse_targets("ttfp_p90<=1.0 continuity>=0.95")


def step(sessions: int, *values: tuple[float | None, float | None], error: str = "") -> Step:
    repeats = [Repeat(f"p{i}", pair, error if i == 0 else "") for i, pair in enumerate(values)]
    return judge(sessions, repeats, TARGETS)


def find(most: int, up_to: int = 256, first: int = 8) -> tuple[Capacity, list[int]]:
    tried: list[int] = []

    def measure(n: int) -> Step:
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
        "holds 48 calls: P90 TTFP 0.81 s (0.78–0.84) ≤ 1 s, continuity 99.2 % (99.0–99.4) ≥ 95.0 %; "
        "at 56 P90 TTFP 1.25 s (1.2–1.3)."
    )
    assert answer(Capacity(TARGETS, (step(1, (math.inf, 0.2)),), 64)) == (
        "holds not even 1 call: P90 TTFP ∞, continuity 20.0 %."
    )
    assert answer(Capacity(TARGETS, (step(64, (0.5, 1.0)),), 64)).startswith(
        "holds 64 calls at least, the most that were tried"
    )
    late = Capacity(TARGETS, (step(8, (0.5, 1.0)), step(16, (0.5, 1.0), error="INVALID: slip")), 64)
    assert answer(late).endswith("at 16 it could not be measured (INVALID: slip).")


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
    assert judged_value("audio_ttfp_p50", metrics, requests) == pytest.approx(
        1.05
    )  # between the 10th and the 11th of 20
    assert judged_value("audio_ttfp_mean", metrics, requests) == math.inf
    assert judged_value("continuity", metrics, requests) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("no list",)),
        ("fast", ("no list", "ttfp_p90<=1.0")),
        ("ttfp_p90<=1.0 please", ("'please'",)),
        ("ttfp_p09<=1.0", ("'ttfp_p09'", "ttfp_p9")),
        ("ttfp_p90>=1.0", ("lower is better", "ttfp_p90<=1.0")),
        ("continuity<=0.9", ("higher is better",)),
        ("ttfp_p90<=1.0.0", ("'1.0.0'",)),
        ("ttfp_p90<1", ("no list",)),
    ],
)
def test_targets_that_are_none_are_named(text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as error:
        parse_targets(text)
    for word in words:
        assert word in str(error.value)


def test_targets_are_parsed() -> None:
    assert parse_targets("ttfp_p90 <= 1.0, continuity>=95% send_slip_p99<=0.01") == (
        Target("audio_ttfp_p90", "<=", 1.0),
        Target("continuity", ">=", 0.95),
        Target("send_slip_p99", "<=", 0.01),
    )
