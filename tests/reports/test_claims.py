"""Claims: the outcome follows from values alone, by the rules of docs/outcomes.md."""

import re
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.claims.bands import of_digits, of_mean, of_percentile, of_share
from reports.claims.claim import Claim, Untold
from reports.claims.grading import (
    CHOSEN,
    CONSTRUCTION,
    DIRECTION,
    DOES_NOT,
    FITTED,
    HOLDS,
    INCONCLUSIVE,
    MATCHES,
    MISSES,
    NOT_MEASURED,
    OF_OUR_OWN,
    PREDICTED,
    UNEXPLAINED,
    UNTOLD,
    Graded,
    as_rows,
    counted,
    facts,
    grade,
    outcome,
)  # fmt: skip
from reports.claims.quantities import Tally, Values, average, largest, smallest
from reports.claims.stated import (
    at_least,
    claim,
    contradiction,
    level,
    moves,
    named,
    runs,
    same,
    saturated,
    times,
    unpublished,
)  # fmt: skip

RUNS = {"panel": None}


def halves(values: Values, **changes: Any) -> Claim:
    """The paper says that something falls to a half."""
    fields: dict[str, Any] = {"id": "x", "text": "halved", "paper": 0.5, "tolerance": 0.1, "unit": "×", "neutral": 1.0}
    return Claim(**{**fields, "measure": lambda panels: values, **changes})


def of_runs(claim: Claim) -> Graded:
    runs: Any = RUNS
    return grade(claim, "card", runs)


def graded(values: Values, **changes: Any) -> Graded:
    return of_runs(halves(values, **changes))


def thrice(value: float) -> Values:
    return {0: value, 1: value, 2: value}


@pytest.mark.parametrize(
    ("values", "changes", "expected"),
    [
        (thrice(0.6), {}, MATCHES),  # the band's end belongs to it
        (thrice(0.61), {}, DIRECTION),
        ({0: 0.5, 1: 0.5, 2: 0.7}, {}, MATCHES),  # a seed outside the band, not outside twice the band
        ({0: 0.5, 1: 0.5, 2: 0.71}, {}, DIRECTION),
        (thrice(0.2), {}, DIRECTION),  # more than the paper is not the paper's number
        ({0: 0.5, 1: 0.5, 2: 1.1}, {}, INCONCLUSIVE),  # both the paper's number and no effect
        ({0: 0.8, 1: 0.9, 2: 1.1}, {}, MISSES),
        (thrice(1.3), {}, MISSES),
        (thrice(0.998), {}, MISSES),  # shown as 1.00
        ({0: 0.5, 1: 0.5}, {}, INCONCLUSIVE),
        ({0: 0.5, 1: 0.5, 2: None}, {}, INCONCLUSIVE),
        ({0: None}, {}, NOT_MEASURED),
        # an interval that reaches the band decides nothing
        ({0: 0.6, 1: 1.1, 2: 1.2}, {}, INCONCLUSIVE),
        ({0: 0.61, 1: 1.1, 2: 1.2}, {}, MISSES),
        ({0: 0.4, 1: -0.1, 2: -0.2}, {"neutral": 0}, INCONCLUSIVE),
        ({0: 0.39, 1: -0.1, 2: -0.2}, {"neutral": 0}, MISSES),
        # a level has no direction
        ({0: 0.4, 1: 0.5, 2: 0.69}, {"neutral": None}, MATCHES),
        ({0: 0.5, 1: 0.5, 2: 0.71}, {"neutral": None}, INCONCLUSIVE),
        ({0: 0.5, 1: 0.61, 2: 0.61}, {"neutral": None}, MISSES),
        (thrice(0.39), {"neutral": None}, MISSES),
    ],
)
def test_a_number_is_judged_by_its_value(values: Values, changes: dict[str, Any], expected: str) -> None:
    assert graded(values, **changes).outcome == expected


@pytest.mark.parametrize(
    ("values", "parity", "bound"),
    [
        (thrice(0.97), MATCHES, MATCHES),
        (thrice(0.96), MISSES, MATCHES),
        (thrice(0.94), MISSES, MISSES),
        (thrice(1.4), MISSES, MATCHES),  # a gain is no parity, and no loss
        ({0: 0.99, 1: 1.0, 2: 1.1}, INCONCLUSIVE, MATCHES),  # a seed outside twice the band
    ],
)
def test_a_claim_that_nothing_is_lost_is_parity_or_a_bound(values: Values, parity: str, bound: str) -> None:
    same_as, not_below = (claim("no loss", said, lambda panels: values) for said in (same(within=0.03), at_least(0.95)))
    assert (outcome(same_as, values), outcome(not_below, values)) == (parity, bound)
    assert (same_as.published, not_below.published) == ("1.00 ×", "at least 0.95 ×")
    assert claim("no loss", at_least(0.95, words="hardly any"), lambda panels: values).sentence


def test_the_source_of_a_number_stands_next_to_it() -> None:
    half = claim("halved", times(0.5, within=0.1), lambda panels: thrice(0.5), source="read off Fig. 5")
    [row] = as_rows([of_runs(half)])
    assert (row["source"], row["paper_text"]) == ("read off Fig. 5", "0.50 × (read off Fig. 5)")


@pytest.mark.parametrize(
    ("values", "rises", "falls"),
    [
        ({0: 1.1, 1: 5.0, 2: 1e9}, HOLDS, DOES_NOT),  # beyond the far end of the range, too
        ({0: 1.1, 1: 5.0, 2: 1.09}, DOES_NOT, DOES_NOT),  # one seed lies on the near side
        (thrice(0.9), DOES_NOT, HOLDS),
        ({0: 2.0, 1: 2.0}, INCONCLUSIVE, INCONCLUSIVE),
    ],
)
def test_a_sentence_holds_if_no_seed_lies_on_the_near_side_of_its_range(values: Values, rises: str, falls: str) -> None:
    for said, expected in ((times((1.1, 100), words="rises"), rises), (times((0.2, 0.9), words="falls"), falls)):
        sentence = claim("said", said, lambda panels: values)
        assert sentence.sentence
        assert of_runs(sentence).outcome == expected


@pytest.mark.parametrize(
    ("changes", "expected", "cause"),
    [
        ({}, PREDICTED, ""),
        ({"chosen": "text awaited"}, CHOSEN, "text awaited"),
        ({"fitted": "host times", "chosen": "text awaited"}, FITTED, "host times"),
        ({"check": "it is so by construction"}, CONSTRUCTION, "it is so by construction"),
        ({"text": "(ours) halved", "fitted": "host times"}, OF_OUR_OWN, "host times"),
    ],
)
def test_provenance_stands_next_to_the_outcome(changes: dict[str, str], expected: str, cause: str) -> None:
    good, bad = graded(thrice(0.5), **changes), graded(thrice(1.3), **changes, explanation="too large")
    assert good.provenance == bad.provenance == expected
    assert (good.outcome, bad.outcome) == (MATCHES, MISSES)  # a fitted value that misses is a miss
    assert (good.cause, bad.cause) == (cause, "; ".join(filter(None, ("too large", cause))))


@given(st.dictionaries(st.integers(0, 9), st.floats(0.01, 3), min_size=3), st.floats(0.1, 0.9), st.floats(0, 0.049))
def test_no_outcome_contradicts_its_values(values: Values, paper: float, tolerance: float) -> None:
    """The rules of docs/outcomes.md once more, from the raw values."""
    found = graded(values, paper=paper, tolerance=tolerance)
    known = [value for value in values.values() if value is not None]
    assert found.spread.interval is not None and found.spread.median == median(known)
    low, high = found.spread.interval
    if found.outcome in (MATCHES, DIRECTION):
        assert high < 1
    if found.outcome == MATCHES:
        assert found.spread.median is not None and abs(found.spread.median - paper) <= tolerance + 1e-9
        assert max(abs(value - paper) for value in known) <= 2 * tolerance + 1e-9
    if found.outcome == INCONCLUSIVE:
        assert high >= 0.995 and low <= paper + tolerance
    assert low <= 1 or found.outcome == MISSES


def test_an_outcome_that_is_not_good_has_a_cause() -> None:
    lacking = grade(halves({}), "card", {}, needs="the weights")
    assert (lacking.outcome, lacking.cause) == (NOT_MEASURED, "needs the weights")
    assert graded({0: 0.5, 1: 0.5}, explanation="x").cause == "fewer than three seeds; x"
    assert graded({0: 0.5, 1: 0.5, 2: 1.1}).cause == "seeds differ by more than the band"
    assert graded(thrice(0.8)).cause == UNEXPLAINED
    assert graded(thrice(0.8), explanation=lambda ours: f"only to {ours}").cause == "only to 0.8"
    assert graded(thrice(0.5), explanation="x").cause == ""
    found = of_runs(tallied(5, 5, paper=0.4, count=(2, 5), explanation="they tip"))
    assert found.cause == "counts this different occur by chance with p = 0.17; they tip"


def test_what_follows_from_another_number_shares_its_fact_and_its_provenance() -> None:
    def half(panels: object) -> Values:
        return thrice(0.5)

    claims = {
        "time": claim("time", level(0.5, within=0.1), half, fitted="step times"),
        "rate": claim("rate", level(0.5, within=0.1), half, follows="time"),
        "both": claim("both", level(0.5, within=0.1), half, follows="rate"),
    }
    [fact] = facts(of_runs(each) for each in named(claims))
    assert [each.claim.id for each in fact.claims] == ["time", "rate", "both"]
    assert (fact.provenance, fact.outcome) == (FITTED, MATCHES)
    with pytest.raises(ValueError, match=r"'rate' follows 'rata', which is no claim .* Did you mean 'rate'\?"):
        named({"rate": claim("rate", level(0.5), half, follows="rata")})


def test_a_fact_has_the_worst_outcome_of_its_claims_and_is_counted_once() -> None:
    some = [graded(thrice(value), id=str(value), fact="V-C: lowest") for value in (0.5, 0.8)]
    assert [(fact.text, fact.outcome) for fact in facts(some)] == [("V-C: lowest", DIRECTION)]
    more = [*some, graded(thrice(1.3), id="miss", fact="V-C: lowest"), graded(thrice(0.5), id="alone")]
    assert [fact.outcome for fact in facts(more)] == [MISSES, MATCHES]
    fitted = graded(thrice(0.5), id="fit", fact="V-C: lowest", fitted="fit")
    own = graded(thrice(0.5), id="own", text="(ours) halved")
    assert counted([*more, fitted, own]) == ("2 predicted: 1 matches, 1 misses; 1 fitted: 1 matches; 1 ours: 1 matches")


@pytest.mark.parametrize(
    ("untold", "evidence", "expected"),
    [
        (unpublished("the length of replies", {}), [0.4], UNTOLD),  # 0.5 lies between 0.4 and our 0.8
        (unpublished("the length of replies", {}), [0.6], DIRECTION),
        (contradiction("Table 1: 52 ms", "Table 2: 48 ms"), [], UNTOLD),
        (saturated("step times", {}), [0.8, 0.5], UNTOLD),
        (saturated("step times", {}), [0.8, 0.75], DIRECTION),
    ],
)
def test_what_cannot_be_told_has_evidence(untold: Untold, evidence: list[float], expected: str) -> None:
    said = halves(thrice(0.8), untold=untold, explanation="too large")
    found = Graded(said, "card", thrice(0.8), {str(i): thrice(value) for i, value in enumerate(evidence)})
    assert found.outcome == expected and found.by_value == DIRECTION
    assert found.cause == (untold.why if expected == UNTOLD else "too large")
    assert Graded(said, "card", {}).outcome == NOT_MEASURED


def test_a_band_over_no_effect_is_refused() -> None:
    with pytest.raises(ValueError, match="no effect"):
        halves({}, tolerance=0.6)
    with pytest.raises(ValueError, match="wider than the effect"):
        claim("said", times(616 / 575, within=0.04), lambda panels: {})


def test_a_band_is_the_precision_of_the_papers_number() -> None:
    assert of_mean(100, cv=1.0).half(2.0) == pytest.approx(2 * 0.196, rel=1e-3)
    assert of_share(0.5, 100).half(0.5) == pytest.approx(0.098, rel=1e-2)
    assert of_share(0.0, 50).half(0.0) == 0.01
    assert of_digits(0.1).half(7.0) == 0.1
    p90 = of_percentile(0.9, 100, sigma=0.5)
    assert p90.half(1.0) == pytest.approx(0.182, abs=0.001)  # exp(1.96 * 0.5 * 0.03 / 0.1755) - 1
    assert of_percentile(0.9, 100, printed=10.0).half(1.0) == 5.0
    ratio, change = times(0.6, within=p90), moves(-0.4, within=p90)
    assert ratio.tolerance == change.tolerance == pytest.approx(p90.half(0.6, 2))  # both numbers have the error
    capped = times(1.07, within=p90)
    assert capped.tolerance == pytest.approx(0.035) and capped.because.startswith("half of the effect")
    assert level(0.6, within=p90).tolerance == p90.half(0.6)


@given(st.sampled_from([0.5, 0.9, 0.99]), st.integers(20, 2000), st.floats(0.2, 1.0))
def test_the_band_of_a_percentile_covers_that_of_simulated_requests(q: float, n: int, sigma: float) -> None:
    draws = np.random.default_rng(0).lognormal(0.0, sigma, (400, n))
    relative = np.quantile(draws, q, axis=1) / np.quantile(draws, q)
    inside = np.mean(np.abs(np.log(relative)) <= np.log(1 + of_percentile(q, n, sigma).relative))
    assert inside >= (0.9 if n * (1 - q) >= 5 else 0.7)


def test_measures_combine_seed_by_seed_and_need_every_part() -> None:
    values: tuple[Values, Values] = {0: 1.0, 1: 4.0, 2: None}, {0: 3.0, 1: 2.0, 2: 5.0, 3: 1.0}
    both = [lambda panels, each=each: each for each in values]
    assert largest(*both)({}) == {0: 3.0, 1: 4.0, 2: None, 3: None}
    assert smallest(*both)({}) == {0: 1.0, 1: 2.0, 2: None, 3: None}
    assert average(*both)({}) == {0: 2.0, 1: 3.0, 2: None, 3: None}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"paper": -0.398, "neutral": 0, "unit": "%"}, "−39.8 %"),
        ({"paper": (0.56, 0.78), "neutral": 0, "unit": "%"}, "56.0 to 78.0 %"),
        ({"paper": 0.3021, "unit": "ms"}, "302.1 ms"),
        ({"paper_text": "about half"}, "about half"),
    ],
)
def test_numbers_are_written_in_the_claims_unit(fields: dict[str, Any], text: str) -> None:
    assert halves({}, **fields).published == text


class Runs(Tally):
    """k of n runs have it, one failed."""

    def __call__(self, panels: object) -> dict[str, float | None]:
        settings: Any = self.settings
        k, n = settings
        return {**{f"run {i}": float(i < k) for i in range(n)}, "failed": None}


def tallied(k: int, n: int, **changes: Any) -> Claim:
    """The paper says that 7 of 10 runs have it."""
    fields: dict[str, Any] = {"id": "x", "text": "7 of 10", "paper": 0.7, "tolerance": 0.0, "unit": "%"}
    counts: Any = (k, n)
    return Claim(**{**fields, "measure": Runs("wall", counts), **changes})


@pytest.mark.parametrize(
    ("ours", "paper", "neutral", "expected"),
    [
        ((5, 5), (2, 5), None, INCONCLUSIVE),  # Fisher's p is 0.17
        ((3, 5), (2, 5), None, MATCHES),
        ((5, 5), (0, 5), None, MISSES),  # 0.008
        ((16, 20), (14, 20), 0.16, MATCHES),
        ((20, 20), (14, 20), 0.16, DIRECTION),  # 0.020
        ((0, 20), (0, 20), None, MATCHES),
        ((3, 5), (14, 20), 0.4, INCONCLUSIVE),  # 23 to 88 %: the paper's 70 % and no effect
        ((2, 4), (2, 4), None, INCONCLUSIVE),
        ((0, 0), (2, 4), None, NOT_MEASURED),
    ],
)
def test_counts_are_compared_as_counts(
    ours: tuple[int, int], paper: tuple[int, int], neutral: float | None, expected: str
) -> None:
    found = of_runs(tallied(*ours, paper=paper[0] / paper[1], count=paper, neutral=neutral))
    assert found.outcome == expected and runs(*paper).count == paper
    assert found.ours == (f"{ours[0]} of {ours[1]}" if ours[1] else "–") and found.spread.missing == 1


@pytest.mark.parametrize(("k", "expected"), [(0, HOLDS), (1, DOES_NOT)])
def test_a_sentence_about_every_run_holds_in_every_run(k: int, expected: str) -> None:
    none = of_runs(tallied(k, 20, paper=0.0, paper_text="none"))
    assert none.outcome == expected
    assert k or none.interval == "0.0 to 16.1 %"


def test_the_examples_of_the_rules_page_have_the_outcome_of_their_row() -> None:
    """Rows such as `| misses | none of these | 1.20 (1.10 to 1.30) |`, of a paper's 0.62 ± 0.10."""
    text = (Path(__file__).parents[2] / "docs" / "outcomes.md").read_text()
    examples = re.findall(r"^\| ([a-z ]+) \|.*\| (\d\.\d\d \(.*?\)).* \|$", text, re.MULTILINE)
    assert len(examples) == 4
    for name, example in examples:
        middle, low, high = map(float, re.findall(r"\d\.\d\d", example))
        assert graded({0: low, 1: middle, 2: high}, paper=0.62).outcome == name
