"""The claims of a paper about its figures, and whether our runs say the same.

A claim's number is measured once for each seed, so that its median has an interval. The verdicts:

    reproduced      the interval lies in the band around the paper's value, which leaves out "no effect"
    direction only  the interval lies on the paper's side of "no effect", but not in the band; of a claim that names no
                    number, or none that its band separates from none, at best; so too of a claim that depends on a
                    choice of ours which was made with such numbers in view
    not reproduced  neither; or so far on the paper's side that it is another effect: more than twice the paper's
    calibrated      a constant was fitted to this very number, or its inputs were taken from the same table, so that it
                    proves nothing
    derived         it follows by arithmetic from another number that is judged
    inconclusive    a level whose median lies in the band and whose interval reaches beyond; counts of runs that differ
                    from the paper's, but by no more than chance would make them, or whose interval covers "no effect"
                    as well as the paper's number
    check held      it could not come out otherwise here, and did not: our model is consistent, no more
    check failed    it could not, and did
    too few seeds   no interval: below three seeds chance and effect cannot be separated
    not measured    the run has no such point, or no value there; or it needs what the card says

A band that is wider than the effect (half of it on either side) cannot tell it from none: a claim that gives one number
with such a band is refused, and one that gives a range or words is a *direction*. Claims of our own, which no paper
makes, begin with "(ours)" and are counted apart.

A *tally* is a claim of how many runs had something, over several panels and settings: k of n, with Wilson's interval of
the share; below five runs there are too few. Where the paper counts, too, its band is Wilson's interval of its count:
reproduced is a share inside, and one outside is not reproduced only when Fisher's exact test tells the counts apart (p
< 0.05). Where it does not count, a tally is judged by its interval: reproduced when it reaches into the band.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.metrics.stats import Spread, across_seeds, fisher, share, wilson
from reports.claims.quantities import Measure, Panels, Tally
from reports.tables.columns import MISSING

REPRODUCED, DIRECTION, NOT_REPRODUCED = "reproduced", "direction only", "not reproduced"
CALIBRATED, DERIVED = "calibrated", "derived"
FEW_SEEDS, NOT_MEASURED = "too few seeds", "not measured"
INCONCLUSIVE, HELD, FAILED = "inconclusive", "check held", "check failed"
VERDICTS = (
    REPRODUCED, DIRECTION, NOT_REPRODUCED, INCONCLUSIVE, CALIBRATED, DERIVED, HELD, FAILED, FEW_SEEDS, NOT_MEASURED,
)  # fmt: skip
OURS = "(ours)"
"""Prefix of the text of a claim that no paper makes."""
UNEXPLAINED = "not explained yet"
OVERSHOOT = 2.0
"""Times the paper's effect, beyond which ours is another one."""
MIN_FOR_TALLY = 5
"""Runs below which a tally has no verdict: Wilson's interval then covers more than half of all shares."""
BY_CHANCE = 0.05
"""Fisher's p from which two counts are not distinguished."""

Unit = Literal["×", "%", "s", "ms", "1/s", ""]
_SHOWN: dict[str, tuple[float, int]] = {
    "×": (1, 2), "%": (100, 1), "s": (1, 2), "ms": (1000, 1), "1/s": (1, 3), "": (1, 2),
}  # fmt: skip


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper with its number. Values are in s, 1/s or shares; `unit` only sets how they are shown."""

    id: str
    """Short and unique in its group, such as `fig11-left-p90`; empty until the card is read."""
    text: str
    """The paper's claim, in our words."""
    paper: float | tuple[float, float]
    """Its value; two where it gives a range."""
    measure: Measure | Tally
    """The same number from our runs, for each seed; or a tally of them."""
    tolerance: float
    """Largest distance of our median from the paper's value or range that counts as reproduced."""
    unit: Unit = ""
    """Unit in which the value is written: % of a share, ms of seconds, × of a ratio."""
    neutral: float | None = None
    """The value of "no effect": 1 of a ratio, 0 of a difference. None where the claim has no direction; then
    it is reproduced or not by its median alone."""
    count: tuple[int, int] | None = None
    """The paper's own count, k of n runs; `paper` is the same as a share."""
    paper_text: str = ""
    """The paper's value as text, if it is not a plain number."""
    calibrated: str = ""
    """The constant that was fitted to this number; empty if none was."""
    chosen: str = ""
    """The choice behind this number that we made knowing the paper's results; empty for none."""
    derived: str = ""
    """The other number from which this one follows by arithmetic; empty if it stands alone."""
    check: str = ""
    """Reason why our model cannot give another result; empty if it can."""
    explanation: str | Callable[[float], str] = ""
    """Reason for the difference: a sentence, or one made from our median. Required unless the claim is reproduced."""
    remark: str = ""
    """Remark for readers about the paper's number, as when it contradicts another of the paper."""

    def __post_init__(self) -> None:
        (low, high), name = self.band, self.id or repr(self.text)
        if self.neutral is not None and low <= self.neutral <= high:
            raise ValueError(
                f"claim {name}: no effect ({self.neutral:g}) lies in its band {low:g} to {high:g}"
            )
        if self.blunt and not isinstance(self.paper, tuple):
            raise ValueError(
                f"claim {name}: its band {low:g} to {high:g} is wider than the effect of {self.effect:g}; set "
                f"within to {self.effect / 2:.3g} at most"
            )

    @property
    def range(self) -> tuple[float, float]:
        """The paper's value as a range."""
        return self.paper if isinstance(self.paper, tuple) else (self.paper, self.paper)

    @property
    def band(self) -> tuple[float, float]:
        """Range of medians that count as reproduced."""
        if self.count is not None:
            return wilson(*self.count)
        low, high = self.range
        return low - self.tolerance, high + self.tolerance

    @property
    def effect(self) -> float:
        """Distance of the paper's value, or the nearest of its range, from "no effect"; inf without one."""
        if self.neutral is None:
            return math.inf
        return min(abs(value - self.neutral) for value in self.range)

    @property
    def blunt(self) -> bool:
        """Return whether the band is wider than the effect, so that it only separates the two sides of "no effect"."""
        low, high = self.band
        return self.count is None and high - low > self.effect * (1 + 1e-9)

    @property
    def own(self) -> bool:
        """True if no paper makes this claim."""
        return self.text.startswith(OURS)

    def overshoots(self, value: float) -> bool:
        """Return whether the value is more than twice as far from "no effect" as the paper's number."""
        if self.neutral is None or self.blunt:
            return False
        return abs(value - self.neutral) > OVERSHOOT * max(abs(end - self.neutral) for end in self.range)

    def on_its_side(self, value: float) -> bool:
        """Return whether the value, in the digits shown, is on the paper's side of "no effect"; True without one."""
        if self.neutral is None:
            return True
        factor, digits = _SHOWN[self.unit]
        beyond = round(value * factor, digits) - round(self.neutral * factor, digits)
        return beyond * (self.range[0] - self.neutral) > 0

    def write(self, value: float) -> str:
        """The value in the claim's unit."""
        factor, digits = _SHOWN[self.unit]
        text = f"{round(value * factor, digits) + 0.0:.{digits}f}".replace("-", "−")
        return f"{text} {self.unit}" if self.unit else text

    @property
    def published(self) -> str:
        """The paper's value in words or numbers."""
        low, high = self.range
        return self.paper_text or (self.write(low) if low == high else self.write_range(low, high))

    def write_range(self, low: float, high: float) -> str:
        return f"{self.write(low).removesuffix(f' {self.unit}')} to {self.write(high)}"


@dataclass(frozen=True)
class Assessed:
    """A claim with our runs and the verdict."""

    claim: Claim
    card: str
    values: Mapping[Any, float | None]
    """Values by seed; for a tally by run."""
    spread: Spread
    verdict: str
    needs: str = ""
    """Resources that a measurement would need and this program lacks."""

    @property
    def tallied(self) -> bool:
        return isinstance(self.claim.measure, Tally)

    @property
    def ours(self) -> str:
        """Our median; of a tally k of n."""
        if self.spread.median is None:
            return MISSING
        return k_of_n(self.spread) if self.tallied else self.claim.write(self.spread.median)

    @property
    def interval(self) -> str:
        """The 95 % interval of our median and its seeds, below three seeds their number; of a tally Wilson's."""
        if self.tallied:
            return self.claim.write_range(*self.spread.interval) if self.spread.interval else ""
        seeds = f"{self.spread.n} seed{'' if self.spread.n == 1 else 's'}"
        if self.spread.interval is None:
            return seeds if self.spread.n else ""
        return f"{self.claim.write_range(*self.spread.interval)}, {seeds}"

    @property
    def explanation(self) -> str:
        """Reason for the difference, or the fitted constant, or the need; empty if reproduced or not measured."""
        if self.verdict == NOT_MEASURED and self.needs:
            return f"needs {self.needs}"
        if self.verdict in (REPRODUCED, NOT_MEASURED):
            return ""
        if self.verdict == CALIBRATED:
            return self.claim.calibrated or self.claim.chosen
        if self.verdict == DERIVED:
            return self.claim.derived
        if self.verdict == HELD:
            return self.claim.check
        assert self.spread.median is not None, "a verdict needs a value"
        given = self.claim.explanation
        text = given if isinstance(given, str) else given(self.spread.median)
        if self.verdict == DIRECTION and self.claim.chosen:
            low, high = self.claim.band
            inside = low <= self.spread.median <= high
            text = self.claim.chosen if inside or not text else f"{text}; {self.claim.chosen}"
        if self.verdict == INCONCLUSIVE and self.claim.count is not None:
            p = by_chance(self.spread, self.claim.count)
            return f"counts this different occur by chance with p = {p:.2f}" + (f"; {text}" if text else "")
        if self.verdict == INCONCLUSIVE and not self.tallied:
            return "seeds lie on both sides of the band's edge" + (f"; {text}" if text else "")
        if self.verdict == DIRECTION and self.claim.blunt and not text:
            return "the paper gives no number to compare it with"
        return text or ("" if self.verdict == FEW_SEEDS else UNEXPLAINED)


def assess(claim: Claim, card: str, panels: Panels, needs: str = "") -> Assessed:
    """Measure a claim on a card's runs; a card without runs was not measured, perhaps as it `needs` something."""
    return judge(claim, card, claim.measure(panels) if panels else {}, needs)


def judge(claim: Claim, card: str, values: Mapping[Any, float | None], needs: str = "") -> Assessed:
    """Return a claim judged by its measured values: by seed, for a tally by run."""
    spread = summed_up(claim, values)
    return Assessed(claim, card, values, spread, _verdict(claim, spread), needs)


def summed_up(claim: Claim, values: Mapping[Any, float | None]) -> Spread:
    """Its median over seeds, or the share of runs of a tally."""
    return share(values) if isinstance(claim.measure, Tally) else across_seeds(values)


def by_verdict(claims: Iterable[Assessed]) -> str:
    """Return the number of claims per verdict: the paper's claims, then our own."""
    return tally((each.claim.own, each.verdict) for each in claims)


def tally(verdicts: Iterable[tuple[bool, str]]) -> str:
    """The same of verdicts, each with whether its claim is our own."""
    parts = []
    by_whom: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
    for ours, verdict in verdicts:
        by_whom[ours][verdict] += 1
    for ours, counts in by_whom.items():
        if counts:
            each = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
            parts.append(f"{counts.total()} {'of our own' if ours else 'claims'}: {each}")
    return "; ".join(parts) or "no claims"


def withheld(claims: Iterable[Assessed]) -> str:
    """Return the number of claims with a median inside the band that are not reproduced, and why; "" for none."""
    reasons: Counter[str] = Counter()
    for each in claims:
        claim, median = each.claim, each.spread.median
        low, high = claim.band
        if claim.own or each.tallied or median is None or not low <= median <= high:
            continue
        if each.verdict in (CALIBRATED, DERIVED, HELD):
            reasons[each.verdict.removesuffix(" held")] += 1
        elif each.verdict in (DIRECTION, INCONCLUSIVE, NOT_REPRODUCED):
            reasons[
                'no number that its band separates from "no effect"'
                if claim.blunt
                else "interval beyond the band"
            ] += 1
    text = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
    return f"Medians alone would make {reasons.total()} more reproduced: {text}." if text else ""


def k_of_n(spread: Spread) -> str:
    """The share of a tally as `4 of 10`."""
    assert spread.median is not None
    return f"{round(spread.median * spread.n)} of {spread.n}"


def by_chance(spread: Spread, count: tuple[int, int]) -> float:
    """Return the probability that chance alone makes a tally differ so much from the paper's count (Fisher's exact
    test)."""
    assert spread.median is not None
    return fisher(round(spread.median * spread.n), spread.n, *count)


def _verdict(claim: Claim, spread: Spread) -> str:
    if spread.median is None:
        return NOT_MEASURED
    if claim.calibrated:
        return CALIBRATED
    if claim.derived:
        return DERIVED
    low, high = claim.band
    if claim.check:
        return HELD if low <= spread.median <= high else FAILED
    if isinstance(claim.measure, Tally):
        return _of_counts(claim, spread)
    if spread.interval is None:
        return FEW_SEEDS
    first, last = spread.interval
    inside = low <= spread.median <= high
    whole = low <= first and last <= high
    if claim.neutral is None:
        if claim.chosen and inside:
            return CALIBRATED
        return REPRODUCED if whole else INCONCLUSIVE if inside else NOT_REPRODUCED
    if not all(map(claim.on_its_side, spread.interval)) or claim.overshoots(spread.median):
        return NOT_REPRODUCED
    return REPRODUCED if whole and not (claim.blunt or claim.chosen) else DIRECTION


def _of_counts(claim: Claim, spread: Spread) -> str:
    if spread.interval is None or spread.n < MIN_FOR_TALLY:
        return FEW_SEEDS
    assert spread.median is not None
    low, high = claim.band
    first, last = spread.interval if claim.count is None else (spread.median, spread.median)
    inside = first <= high and low <= last
    if claim.count is not None and not inside and by_chance(spread, claim.count) >= BY_CHANCE:
        return INCONCLUSIVE
    if claim.neutral is None:
        return REPRODUCED if inside else NOT_REPRODUCED
    if not all(map(claim.on_its_side, spread.interval)):
        return INCONCLUSIVE if inside else NOT_REPRODUCED
    return REPRODUCED if inside else DIRECTION


def as_rows(claims: Sequence[Assessed]) -> list[dict[str, Any]]:
    """All of it, as plain data."""
    return [
        {
            "id": each.claim.id,
            "card": each.card,
            "claim": each.claim.text,
            "paper": each.claim.paper,
            "paper_text": each.claim.published,
            "unit": each.claim.unit,
            "band": each.claim.band,
            "neutral": each.claim.neutral,
            "paper_count": each.claim.count,
            "ours": each.spread.median,
            "ours_text": each.ours,
            "interval": each.spread.interval,
            "interval_text": each.interval,
            "n": each.spread.n,
            "missing": each.spread.missing,
            "by_run" if each.tallied else "by_seed": dict(each.values),
            "verdict": each.verdict,
            "explanation": each.explanation,
            "own": each.claim.own,
            "calibrated": each.claim.calibrated or None,
            "derived": each.claim.derived or None,
            "check": each.claim.check or None,
            "needs": each.needs or None,
            "remark": each.claim.remark,
        }
        for each in claims
    ]
