"""Outcomes: whether our runs say what a paper says. docs/outcomes.md has the rules for readers, `outcome` applies them.

The outcome depends on values alone. Provenance stands next to it: whether the number could come out otherwise.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from harness.metrics.stats import MIN_FOR_INTERVAL, Spread, across_seeds, fisher, share
from reports.claims.claim import OURS, Claim
from reports.claims.quantities import Panels, Tally
from reports.tables.columns import MISSING

MATCHES, DIRECTION, MISSES = "matches", "same direction", "misses"
HOLDS, DOES_NOT = "holds", "does not hold"
INCONCLUSIVE, UNTOLD, NOT_MEASURED = "inconclusive", "cannot be told", "not measured"
OUTCOMES = (MATCHES, HOLDS, DIRECTION, MISSES, DOES_NOT, UNTOLD, INCONCLUSIVE, NOT_MEASURED)
GOOD, BAD = (MATCHES, HOLDS), (MISSES, DOES_NOT)
PREDICTED, CHOSEN, FITTED, CONSTRUCTION = "predicted", "chosen afterwards", "fitted", "by construction"
OF_OUR_OWN = OURS.strip("()")
PROVENANCES = (PREDICTED, CHOSEN, FITTED, CONSTRUCTION, OF_OUR_OWN)
UNEXPLAINED = "not explained yet"
MIN_FOR_COUNT = 5
"""Runs below which a count is inconclusive: Wilson's interval then covers more than half of all shares."""
BY_CHANCE = 0.05
"""Fisher's p from which two counts are not distinguished."""

Values = Mapping[Any, float | None]


def outcome(claim: Claim, values: Values) -> str:
    """Return the outcome of a claim by our values: by seed, of a tally 1 or 0 by run."""
    spread = summed_up(claim, values)
    if spread.median is None:
        return NOT_MEASURED
    tally, interval = isinstance(claim.measure, Tally), spread.interval
    if spread.n < (MIN_FOR_COUNT if claim.count else MIN_FOR_INTERVAL) or interval is None:
        return INCONCLUSIVE
    if claim.sentence:
        measured = [spread.median] if tally else [value for value in values.values() if value is not None]
        return HOLDS if all(map(claim.accepts, measured)) else DOES_NOT
    low, high = claim.band
    inside = low <= spread.median <= high
    aside = all(map(claim.on_its_side, interval))
    wide = not tally and not all(map(claim.near, (spread.low, spread.high)))
    if inside and aside and not wide:
        return MATCHES
    if aside and claim.neutral is not None:
        return DIRECTION
    undecided = inside if claim.neutral is None else interval[0] <= high and low <= interval[1]
    by_luck = claim.count is not None and by_chance(spread, claim.count) >= BY_CHANCE
    return INCONCLUSIVE if undecided or by_luck else MISSES


def provenance(claim: Claim) -> str:
    """Return how far a claim's number could have come out otherwise."""
    if claim.own:
        return OF_OUR_OWN
    if claim.check:
        return CONSTRUCTION
    return FITTED if claim.fitted else CHOSEN if claim.chosen else PREDICTED


@dataclass(frozen=True)
class Graded:
    """A claim with our runs. `values`: by seed, of a tally by run; `evidence`: the same at the settings of `untold`."""

    claim: Claim
    card: str
    values: Values
    evidence: Mapping[str, Values] = field(default_factory=dict)
    needs: str = ""
    """Resources that a measurement would need and this program lacks."""

    @cached_property
    def spread(self) -> Spread:
        return summed_up(self.claim, self.values)

    @property
    def tallied(self) -> bool:
        return isinstance(self.claim.measure, Tally)

    @cached_property
    def by_value(self) -> str:
        """The outcome of the values alone."""
        return outcome(self.claim, self.values)

    @property
    def outcome(self) -> str:
        """The outcome, or that it cannot be told."""
        return UNTOLD if self.by_value != NOT_MEASURED and self.evident else self.by_value

    @property
    def evident(self) -> bool:
        """Return whether the claim has evidence that it cannot be judged, and our values show it."""
        untold = self.claim.untold
        if untold is None or untold.kind == "contradiction":
            return untold is not None
        others = list(self.evidence.values())
        if untold.kind == "saturated":
            return len({outcome(self.claim, values) for values in (self.values, *others)}) > 1
        medians = [
            spread.median
            for spread in (self.spread, *(summed_up(self.claim, values) for values in others))
            if spread.median is not None
        ]
        return bool(medians) and min(medians) <= min(self.claim.range) <= max(self.claim.range) <= max(medians)

    @property
    def provenance(self) -> str:
        return provenance(self.claim)

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
    def cause(self) -> str:
        """Reason for the difference and for the provenance; empty for a prediction that is met."""
        claim = self.claim
        if self.outcome == NOT_MEASURED:
            return f"needs {self.needs}" if self.needs else ""
        parts = [claim.check or claim.fitted or claim.chosen]
        if self.outcome == UNTOLD and claim.untold is not None:
            parts.insert(0, claim.untold.why)
        elif self.outcome not in GOOD:
            parts.insert(0, self._difference() or ("" if parts[0] else UNEXPLAINED))
        return "; ".join(filter(None, parts))

    def _difference(self) -> str:
        assert self.spread.median is not None, "an outcome needs a value"
        given = self.claim.explanation
        parts = [given if isinstance(given, str) else given(self.spread.median)]
        if self.outcome == INCONCLUSIVE and self.claim.count is not None:
            p = by_chance(self.spread, self.claim.count)
            parts.insert(0, f"counts this different occur by chance with p = {p:.2f}")
        elif self.outcome == INCONCLUSIVE and self.spread.n < MIN_FOR_INTERVAL:
            parts.insert(0, "fewer than three seeds")
        elif self.outcome == INCONCLUSIVE:
            parts.insert(0, "seeds differ by more than the band")
        return "; ".join(filter(None, parts))


def grade(claim: Claim, card: str, panels: Panels, needs: str = "") -> Graded:
    """Measure a claim on a card's runs; a card without runs was not measured, perhaps as it `needs` something."""
    over = claim.untold.over if claim.untold and panels else {}
    evidence = {setting: measure(panels) for setting, measure in over.items()}
    return Graded(claim, card, claim.measure(panels) if panels else {}, evidence, needs)


@dataclass(frozen=True)
class Fact:
    """The claims of one provenance that test one sentence or cell of a paper."""

    text: str
    claims: Sequence[Graded]

    @property
    def sentence(self) -> bool:
        return all(each.claim.sentence for each in self.claims)

    @property
    def provenance(self) -> str:
        return self.claims[0].provenance

    @property
    def outcome(self) -> str:
        """The worst of its claims, so that a fact holds if all of them do."""
        found = {each.outcome for each in self.claims}
        for worst in (*BAD, UNTOLD, INCONCLUSIVE, NOT_MEASURED, DIRECTION):
            if worst in found:
                return worst if worst not in BAD else DOES_NOT if self.sentence else MISSES
        return HOLDS if self.sentence else MATCHES


def facts(claims: Iterable[Graded]) -> list[Fact]:
    """The facts that claims make up, in the order of the claims; a claim that names no fact is one."""
    together: dict[tuple[str, str], list[Graded]] = {}
    for each in claims:
        together.setdefault((each.claim.fact or each.claim.id, each.provenance), []).append(each)
    return [Fact(each[0].claim.fact or each[0].claim.text, each) for each in together.values()]


def counted(claims: Iterable[Graded]) -> str:
    """Return the facts of a paper by provenance and outcome, in one sentence; those of our own last."""
    parts = []
    by_provenance: dict[str, Counter[str]] = {each: Counter() for each in PROVENANCES}
    for fact in facts(claims):
        by_provenance[fact.provenance][fact.outcome] += 1
    for each, counts in by_provenance.items():
        if counts:
            outcomes = ", ".join(f"{counts[of]} {of}" for of in OUTCOMES if counts[of])
            parts.append(f"{counts.total()} {each}: {outcomes}")
    return "; ".join(parts) or "no claims"


def summed_up(claim: Claim, values: Values) -> Spread:
    """Its median over seeds, or the share of runs of a tally."""
    return share(values) if isinstance(claim.measure, Tally) else across_seeds(values)


def k_of_n(spread: Spread) -> str:
    """The share of a tally as `4 of 10`."""
    assert spread.median is not None
    return f"{round(spread.median * spread.n)} of {spread.n}"


def by_chance(spread: Spread, count: tuple[int, int]) -> float:
    """Return the probability that chance alone makes a tally differ so much from the paper's count (Fisher's exact
    test)."""
    assert spread.median is not None
    return fisher(round(spread.median * spread.n), spread.n, *count)


def as_rows(claims: Iterable[Graded]) -> list[dict[str, Any]]:
    """All of it, as plain data."""
    return [
        {
            "id": each.claim.id,
            "card": each.card,
            "claim": each.claim.text,
            "fact": each.claim.fact or None,
            "paper": each.claim.paper,
            "paper_text": each.claim.published,
            "source": each.claim.source or None,
            "unit": each.claim.unit,
            "sentence": each.claim.sentence,
            "band": each.claim.band,
            "because": each.claim.because or None,
            "neutral": each.claim.neutral,
            "paper_count": each.claim.count,
            "ours": each.spread.median,
            "ours_text": each.ours,
            "interval": each.spread.interval,
            "interval_text": each.interval,
            "n": each.spread.n,
            "missing": each.spread.missing,
            "by_run" if each.tallied else "by_seed": dict(each.values),
            "evidence": {setting: dict(values) for setting, values in each.evidence.items()} or None,
            "outcome": each.outcome,
            "provenance": each.provenance,
            "cause": each.cause,
            "needs": each.needs or None,
            "remark": each.claim.remark,
        }
        for each in claims
    ]
