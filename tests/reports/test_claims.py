"""Claims: the verdict follows from median and interval alone, and no claim is called reproduced by chance."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.claims.claim import (
    CALIBRATED,
    DERIVED,
    DIRECTION,
    FEW_SEEDS,
    INCONCLUSIVE,
    NOT_MEASURED,
    NOT_REPRODUCED,
    REPRODUCED,
    UNEXPLAINED,
    Assessed,
    Claim,
    assess,
    by_verdict,
    withheld,
)
from reports.claims.quantities import Tally, Values, average, largest, smallest
from reports.claims.stated import Number, claim, moves, times

RUNS = {"panel": None}


def halves(values: Values, **changes: object) -> Claim:
    """The paper says that something falls to a half."""
    fields = {"id": "x", "text": "halved", "paper": 0.5, "tolerance": 0.1, "unit": "×", "neutral": 1.0}
    return Claim(**{**fields, "measure": lambda panels: values, **changes})  # type: ignore[arg-type]


def verdict(values: Values, **changes: object) -> str:
    return assess(halves(values, **changes), "card", RUNS).verdict  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({0: 0.5, 1: 0.55, 2: 0.45}, REPRODUCED),
        ({0: 0.6, 1: 0.6, 2: 0.6}, REPRODUCED),  # the band's end belongs to it
        ({0: 0.8, 1: 0.85, 2: 0.9}, DIRECTION),
        ({0: 0.2, 1: 0.3, 2: 0.25}, DIRECTION),  # more than the paper is not the paper's number
        ({0: 0.5, 1: 0.5, 2: 0.7}, DIRECTION),  # a seed lies outside
        ({0: 0.5, 1: 0.5, 2: 1.1}, NOT_REPRODUCED),  # chance would do
        ({0: 1.2, 1: 1.3, 2: 1.4}, NOT_REPRODUCED),
        ({0: 0.998, 1: 0.999, 2: 0.997}, NOT_REPRODUCED),  # shown as 1.00
        ({0: 0.5, 1: 0.5}, FEW_SEEDS),
        ({0: 0.5, 1: 0.5, 2: None}, FEW_SEEDS),
        ({0: None, 1: None}, NOT_MEASURED),
        ({}, NOT_MEASURED),
    ],
)
def test_verdicts(values: Values, expected: str) -> None:
    assert verdict(values) == expected


def test_a_fitted_number_is_never_reproduced() -> None:
    fitted = assess(halves({0: 0.5, 1: 0.5, 2: 0.5}, calibrated="host times"), "card", RUNS)  # type: ignore[arg-type]
    assert (fitted.verdict, fitted.explanation) == (CALIBRATED, "host times")


def test_a_number_that_was_chosen_with_it_in_view_is_at_best_a_direction() -> None:
    for ours, explained in ((0.5, "text awaited"), (0.25, "too small; text awaited")):
        values: Values = {0: ours, 1: ours, 2: ours}
        found = assess(halves(values, chosen="text awaited", explanation="too small"), "card", RUNS)  # type: ignore[arg-type]
        assert (found.verdict, found.explanation) == (DIRECTION, explained)
    other = assess(halves({0: 1.2, 1: 1.3, 2: 1.4}, chosen="text awaited"), "card", RUNS)  # type: ignore[arg-type]
    assert other.verdict == NOT_REPRODUCED
    plain = {"neutral": None, "chosen": "text awaited"}
    inside, outside = (
        assess(halves({0: ours, 1: ours, 2: ours}, **plain), "card", RUNS)  # type: ignore[arg-type]
        for ours in (0.5, 3.0)
    )
    assert (inside.verdict, inside.explanation) == (CALIBRATED, "text awaited")
    assert outside.verdict == NOT_REPRODUCED


def test_what_cannot_come_out_otherwise_is_a_check() -> None:
    held, failed = (
        assess(halves({0: ours}, check="it is so by construction"), "card", RUNS)  # type: ignore[arg-type]
        for ours in (0.5, 0.9)
    )
    assert (held.verdict, held.explanation) == ("check held", "it is so by construction")
    assert failed.verdict == "check failed" and failed.explanation != held.explanation


def test_a_range_and_no_direction() -> None:
    assert verdict({0: 0.3, 1: 0.35, 2: 0.4}, paper=(0.3, 0.5)) == REPRODUCED
    assert verdict({0: 0.1, 1: 0.15, 2: 0.1}, paper=(0.3, 0.5), neutral=None) == NOT_REPRODUCED
    assert verdict({0: 0.5, 1: 0.5, 2: 0.55}, neutral=None) == REPRODUCED
    assert verdict({0: 0.5, 1: 0.5, 2: 1.5}, neutral=None) == INCONCLUSIVE


def test_more_than_twice_the_effect_is_another_one() -> None:
    fifth = {"paper": 0.8, "tolerance": 0.05}
    assert verdict({0: 0.65, 1: 0.65, 2: 0.65}, **fifth) == DIRECTION
    assert verdict({0: 0.55, 1: 0.55, 2: 0.55}, **fifth) == NOT_REPRODUCED
    over_a_range = {"paper": (1.5, 1.7), "tolerance": 0.05}
    assert verdict({0: 2.3, 1: 2.3, 2: 2.3}, **over_a_range) == DIRECTION  # twice the larger end
    assert verdict({0: 2.5, 1: 2.5, 2: 2.5}, **over_a_range) == NOT_REPRODUCED


@pytest.mark.parametrize(
    ("number", "ours", "allowed"),
    [
        (times(616 / 575, within=0.04), 1.05, None),  # OmniProxy's 7 %
        (times(52 / 48, within=0.06), 1.05, None),
        (times(1.15, within=0.08), 1.08, None),
        (times((1.1, 100), words="rises"), 50.0, DIRECTION),  # Fig. 5a and 8 of LiveServe
        (times((0.2, 0.95), words="less"), 0.9, DIRECTION),  # Fig. 17
        (times((1.001, 10.0), words="the lowest"), 1.01, DIRECTION),  # Nova's Figs. 10 to 15
        (moves((0.2, 0.69), within=0.05), 0.5, DIRECTION),  # ConServe's Fig. 5
        (times((20, 1e6), words="37 to 57 ×"), 30.0, DIRECTION),  # LiveServe's Table 1
        (times(2.21, within=0.4), 18.2, NOT_REPRODUCED),  # Ming's overshoot
    ],
)
def test_a_band_that_holds_half_of_the_effect_and_none_makes_nothing_reproduced(
    number: Number, ours: float, allowed: str | None
) -> None:
    """Numbers of cards as they once were: refused, or no more than a direction."""

    def old() -> Claim:
        return claim("said", number, lambda panels: {0: ours, 1: ours, 2: ours}, "so")

    if allowed is None:
        with pytest.raises(ValueError, match="wider than the effect"):
            old()
    else:
        assert assess(old(), "card", RUNS).verdict == allowed


def test_what_follows_from_another_number_is_derived() -> None:
    found = assess(halves({0: 0.5, 1: 0.5, 2: 0.5}, derived="Little's law"), "card", RUNS)  # type: ignore[arg-type]
    assert (found.verdict, found.explanation) == (DERIVED, "Little's law")


def test_claims_of_our_own_are_counted_apart_and_what_the_rules_withhold_is_said() -> None:
    def one(text: str, values: Values, **changes: object) -> Assessed:
        return assess(halves(values, text=text, **changes), "card", RUNS)  # type: ignore[arg-type]

    half = {0: 0.5, 1: 0.5, 2: 0.5}
    found = [one("halved", half), one("(ours) halved", half), one("so", half, calibrated="fit")]
    found.append(one("wide", {0: 0.5, 1: 0.5, 2: 0.7}))
    assert (
        by_verdict(found)
        == "3 claims: 1 reproduced, 1 direction only, 1 calibrated; 1 of our own: 1 reproduced"
    )
    assert (
        withheld(found)
        == "Medians alone would make 2 more reproduced: calibrated 1, interval beyond the band 1."
    )


def test_a_band_over_no_effect_is_refused() -> None:
    with pytest.raises(ValueError, match="no effect"):
        halves({}, tolerance=0.6)


@given(
    st.dictionaries(st.integers(0, 9), st.floats(0.01, 3), min_size=3),
    st.floats(0.1, 0.9),
    st.floats(0, 0.049),
)
def test_no_verdict_contradicts_its_interval(values: Values, paper: float, tolerance: float) -> None:
    found = assess(halves(values, paper=paper, tolerance=tolerance), "card", RUNS)  # type: ignore[arg-type]
    assert found.spread.interval is not None and found.spread.median is not None
    low, high = found.spread.interval
    if found.verdict in (REPRODUCED, DIRECTION):
        assert high < 1
    if found.verdict == REPRODUCED:
        assert max(abs(low - paper), abs(high - paper)) <= tolerance + 1e-9
    if low > 1:
        assert found.verdict == NOT_REPRODUCED


def test_a_difference_needs_an_explanation() -> None:
    off = {0: 0.8, 1: 0.85, 2: 0.9}
    assert assess(halves(off), "card", RUNS).explanation == UNEXPLAINED  # type: ignore[arg-type]
    said = halves(off, explanation=lambda ours: f"only to {ours}")
    assert assess(said, "card", RUNS).explanation == "only to 0.85"  # type: ignore[arg-type]
    assert assess(halves({0: 0.5, 1: 0.5, 2: 0.5}), "card", RUNS).explanation == ""  # type: ignore[arg-type]


def test_measures_combine_seed_by_seed_and_need_every_part() -> None:
    first = lambda panels: {0: 1.0, 1: 4.0, 2: None}  # noqa: E731
    second = lambda panels: {0: 3.0, 1: 2.0, 2: 5.0, 3: 1.0}  # noqa: E731
    assert largest(first, second)({}) == {0: 3.0, 1: 4.0, 2: None, 3: None}
    assert smallest(first, second)({}) == {0: 1.0, 1: 2.0, 2: None, 3: None}
    assert average(first, second)({}) == {0: 2.0, 1: 3.0, 2: None, 3: None}


def test_numbers_are_written_in_the_claims_unit() -> None:
    assert halves({}, paper=-0.398, neutral=0, unit="%").published == "−39.8 %"
    assert halves({}, paper=(0.56, 0.78), neutral=0, unit="%").published == "56.0 to 78.0 %"
    assert halves({}, paper=0.3021, unit="ms").published == "302.1 ms"
    assert halves({}, paper_text="about half").published == "about half"


class Runs(Tally):
    """k of n runs have it, one failed."""

    def __call__(self, panels: object) -> dict[str, float | None]:
        k, n = self.settings  # type: ignore[misc]
        return {**{f"run {i}": float(i < k) for i in range(n)}, "failed": None}  # type: ignore[operator]


def counted(k: int, n: int, **changes: object) -> Claim:
    """The paper says that 7 of 10 runs have it."""
    fields = {"id": "x", "text": "7 of 10", "paper": 0.7, "tolerance": 0.0, "unit": "%"}
    return Claim(**{**fields, "measure": Runs("wall", (k, n)), **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("k", "n", "neutral", "expected"),
    [
        (14, 20, None, REPRODUCED),
        (12, 20, None, REPRODUCED),  # 39 to 78 %
        (4, 20, None, NOT_REPRODUCED),
        (20, 20, None, NOT_REPRODUCED),
        (14, 20, 0.5, INCONCLUSIVE),  # its interval reaches below a half
        (19, 20, 0.5, DIRECTION),
        (16, 20, 0.5, REPRODUCED),
        (3, 4, None, FEW_SEEDS),
        (0, 0, None, NOT_MEASURED),
    ],
)
def test_a_tally_is_judged_by_its_interval(k: int, n: int, neutral: float | None, expected: str) -> None:
    found = assess(counted(k, n, neutral=neutral), "card", RUNS)  # type: ignore[arg-type]
    assert found.verdict == expected
    assert found.ours == (f"{k} of {n}" if n else "–") and found.spread.missing == 1


@pytest.mark.parametrize(
    ("ours", "paper", "neutral", "expected"),
    [
        ((5, 5), (2, 5), None, INCONCLUSIVE),  # Fisher's p is 0.17
        ((2, 5), (5, 5), None, INCONCLUSIVE),
        ((3, 5), (2, 5), None, REPRODUCED),
        ((5, 5), (0, 5), None, NOT_REPRODUCED),  # 0.008
        ((16, 20), (14, 20), 0.16, REPRODUCED),
        ((20, 20), (14, 20), 0.16, DIRECTION),  # 0.020
        ((0, 20), (0, 20), None, REPRODUCED),
        ((3, 5), (14, 20), 0.4, INCONCLUSIVE),  # 23 to 88 %: the paper's 70 % and no effect
        ((2, 4), (2, 4), None, FEW_SEEDS),
    ],
)
def test_counts_are_compared_as_counts(
    ours: tuple[int, int], paper: tuple[int, int], neutral: float | None, expected: str
) -> None:
    fields = {"paper": paper[0] / paper[1], "count": paper, "neutral": neutral}
    found = assess(counted(*ours, **fields), "card", RUNS)  # type: ignore[arg-type]
    assert found.verdict == expected


def test_inconclusive_counts_say_how_probable_they_are() -> None:
    found = assess(counted(5, 5, paper=0.4, count=(2, 5), explanation="they tip"), "card", RUNS)  # type: ignore[arg-type]
    assert found.explanation == "counts this different occur by chance with p = 0.17; they tip"


def test_no_run_of_twenty_still_has_an_interval() -> None:
    found = assess(counted(0, 20, paper=0.0), "card", RUNS)  # type: ignore[arg-type]
    assert (found.verdict, found.interval) == (REPRODUCED, "0.0 to 16.1 %")


def test_what_is_needed_stands_where_an_explanation_would() -> None:
    found = assess(counted(1, 2), "card", {}, needs="the weights")
    assert (found.verdict, found.explanation) == (NOT_MEASURED, "needs the weights")
