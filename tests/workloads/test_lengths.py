"""Laws of lengths: published statistics, what a user changes of a law, and where its numbers are from."""

from typing import Any

import numpy as np
import pytest

from workloads.distributions.lengths import (
    BURSTGPT_CHAT,
    SHAREGPT_PROMPT,
    SHAREGPT_REPLY,
    LengthModel,
    Part,
    QuantileTable,
)
from workloads.seeds import stream


def draw(model: LengthModel, n: int = 100_000) -> np.ndarray:
    return model.sample(stream(0, "lengths"), n)


def test_text_matches_the_published_sharegpt_statistics() -> None:
    assert draw(SHAREGPT_PROMPT).mean() == pytest.approx(84, rel=0.1)
    tokens = draw(SHAREGPT_REPLY)
    assert [tokens.mean(), np.median(tokens), np.percentile(tokens, 90)] == pytest.approx([457, 300, 975], rel=0.05)
    assert np.percentile(tokens, 99) == pytest.approx(2600, rel=0.1)
    # Survival function of the same statistics; the lognormal is a model of it, good to 4 points.
    for length, share in ((100, 0.83), (200, 0.66), (400, 0.36), (800, 0.141), (1600, 0.042)):
        assert np.mean(tokens >= length) == pytest.approx(share, abs=0.06)


@pytest.mark.parametrize(("name", "mean", "p99"), [("input_tokens", 2747, 3446), ("output_tokens", 267, 481)])
def test_conserve_s_chats_are_as_long_as_its_table_1_says(name: str, mean: int, p99: int) -> None:
    law = BURSTGPT_CHAT[name]
    assert law.median * np.exp(law.sigma**2 / 2) == pytest.approx(mean, abs=0.5)
    assert law.quantile(np.array(0.99)) == pytest.approx(p99, rel=2e-3)
    assert f"ConServe, Table 1, BurstGPT: mean {mean}, P99 {p99}" in str(law)


@pytest.mark.parametrize(
    ("changes", "values", "median", "note"),
    [
        ((None, None, None), (1, 10, 1000), 10, "x"),
        ((20, None, None), (2, 20, 2000), 20, "x; scaled or cut by the user"),
        ((0.1, None, None), (1, 1, 10), 1, "x; scaled or cut by the user"),  # no length is below 1
        ((20, None, 20), (2, 20, 20), 20, "x; scaled or cut by the user"),
        ((None, None, 1000), (1, 10, 1000), 10, "x"),
        ((None, None, 999), (1, 10, 999), 10, "x; scaled or cut by the user"),
    ],
)
def test_a_table_of_lengths_is_scaled_to_a_median_and_cut_at_a_maximum(
    changes: tuple[Any, ...], values: tuple, median: float, note: str
) -> None:
    table = QuantileTable((0.0, 0.5, 1.0), (1, 10, 1000), "x")
    found = table.adjusted(*changes)
    assert isinstance(found, QuantileTable) and found.values == pytest.approx(values)
    assert (found.median, found.source) == (pytest.approx(median), note)
    half = Part(table, 0.5, 1.0).adjusted(*changes)  # whose median is that of the whole law
    assert isinstance(half, Part) and half.law == found
    assert half.sample(stream(0, "half"), 1000).min() >= np.rint(median)


def test_with_a_log_spread_a_table_is_a_lognormal_law() -> None:
    law = QuantileTable((0.0, 0.5, 1.0), (1, 10, 1000), "x").adjusted(None, 0.5, 800)
    assert isinstance(law, LengthModel) and (law.median, law.sigma) == (pytest.approx(10), 0.5)
    assert (law.low, law.high) == (1, 800)


def test_no_part_of_a_law_has_a_length_below_1() -> None:
    table = QuantileTable((0.0, 1.0), (0.2, 1.4), "x")
    assert set(Part(table, 0.0, 1.0).sample(stream(0, "lengths"), 100)) == {1}
