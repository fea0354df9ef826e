"""The largest value that passes, with few trials: doubling until one fails, then halving the gap; and its file.

It is taken for monotone: a value that passes speaks for the smaller ones, one that fails for the larger ones. In
virtual time a value passes when every seed meets every target. Over sockets it passes, fails or stays undecided by the
rule of any live run (`harness.live.verdict`). Turns that failed count as infinitely late: no server gets faster by
dropping its callers. A live value that stays undecided is measured once more, with as many repeats again; if that does
not decide it, it does not count as passed. One that could not be measured, because a machine was too slow, says nothing
about the server: it is tried again, and if that does not help, the search ends INCONCLUSIVE.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

from harness.metrics.replies import FAILED_SHARE
from harness.records.results import SEARCH
from harness.slo.targets import FAIL, INCONCLUSIVE, PASS, Repeat, Target, Verdict, name_of, number
from workloads.errors import UserError

CLOSE = 6
"""A search at an endpoint ends when the gap above N is at most N / 6: 48 holds, 56 does not. [chosen]"""
AGAIN = 2
"""So often a number that could not be measured is tried again. [chosen]"""

Passed = Mapping[float, bool]
"""Value -> whether it passed."""
Outcome = Literal["passes", "fails", "undecided", "invalid"]
SHOWN: dict[Outcome, str] = {"passes": PASS, "fails": FAIL, "undecided": INCONCLUSIVE, "invalid": "INVALID"}

_DIGITS = 3
"""Significant digits of a value between two that are no whole numbers: nobody asks for a rate of 3.1406."""


@dataclass(frozen=True)
class Bounds:
    """Bounds of a search. `first`: the value to begin with. `whole`: whole numbers alone. `close`: the search ends when
    the gap above N is at most N / close, or 1 for whole numbers."""

    lowest: float
    highest: float
    first: float
    whole: bool
    close: int

    def following(self, passed: Passed) -> float | None:
        """Return the value to try next; None when the largest passing value is known, or that no value or every value
        passes."""
        if not passed:
            return min(max(self.first, self.lowest), self.highest)
        low, high = holding(passed), breaking(passed)
        if high is None:
            assert low is not None, "what was tried passed or failed"
            return min(2 * low, self.highest) if low < self.highest else None
        if low is None:
            return max(self._between(0, high), self.lowest) if high > self.lowest else None
        if high - low <= max(1 if self.whole else 0, low // self.close if self.whole else low / self.close):
            return None
        between = self._between(low, high)
        return between if low < between < high else None

    def _between(self, low: float, high: float) -> float:
        return (low + high) // 2 if self.whole else float(f"{(low + high) / 2:.{_DIGITS}g}")


def holding(passed: Passed) -> float | None:
    """Return the largest value that passed below every one that failed."""
    failed = breaking(passed)
    return max((v for v, ok in passed.items() if ok and (failed is None or v < failed)), default=None)


def breaking(passed: Passed) -> float | None:
    """Return the smallest value that failed."""
    return min((value for value, ok in passed.items() if not ok), default=None)


def surprising(passed: Passed) -> tuple[float, float] | None:
    """Return the smallest value that failed, and the largest one that passed above it; None where all is monotone."""
    failed = breaking(passed)
    above = [value for value, ok in passed.items() if ok and failed is not None and value > failed]
    return (failed, max(above)) if failed is not None and above else None


class Tried(NamedTuple):
    """One measured point; they sort by value and seed."""

    value: float
    seed: int
    repeat: Repeat


@dataclass(frozen=True)
class Step:
    """All repeats at one value. `verdict`: pass, fail, too few turns, or not measurable."""

    value: float
    repeats: tuple[Repeat, ...]
    verdict: Outcome


def judge(value: float, repeats: Iterable[Repeat], targets: Sequence[Target]) -> Step:
    """Judge by the values alone: pass when every repeat was measured and meets every target; fail when one misses
    some."""
    repeats = tuple(repeats)
    failing = [repeat for repeat in repeats if not repeat.error and not repeat.meets(targets)]
    invalid = [repeat for repeat in repeats if repeat.error]
    return Step(value, repeats, "fails" if failing else "invalid" if invalid else "passes")


@dataclass(frozen=True)
class Interval:
    """Interval over seeds of the largest passing value of each; None: no tried value passed on a seed."""

    low: float | None
    middle: float | None
    high: float | None


@dataclass(frozen=True)
class Question:
    """The question of a search: the largest value of the parameter `over` at which every target is met."""

    over: str
    targets: tuple[Target, ...]
    bounds: Bounds
    seeds: tuple[int, ...]
    """The seeds that a value is tried on."""
    counts: str = ""
    """The unit of the values, such as call; "" where they have none, and are named by `over`."""

    def amount(self, value: float) -> str:
        """Return `16 calls`, or `c=16`."""
        if not self.counts:
            return f"{self.over}={value:g}"
        return f"{value:g} {self.counts}{'' if value == 1 else 's'}"


@dataclass(frozen=True)
class Search:
    """The search at one engine and one setting of the experiment's other axes.

    All seeds are tried together until the largest value is known at which all meet every target. Seeds that still met
    the targets where another did not then go on by themselves: the largest value of each seed shows how far they
    differ.
    """

    question: Question
    tried: Sequence[Tried] = ()
    """In the order in which it was."""
    verdicts: Mapping[float, Outcome] = field(default_factory=dict)
    """Verdicts on values that were not judged by their repeats alone, as `judge` does."""
    engine: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The values that were tried on every seed, ascending."""
        repeats: dict[float, dict[int, Repeat]] = {}
        for value, seed, repeat in self.tried:
            repeats.setdefault(value, {})[seed] = repeat
        steps = [
            judge(value, repeats[value].values(), self.question.targets)
            for value in sorted(repeats)
            if repeats[value].keys() >= set(self.question.seeds)
        ]
        return tuple(replace(step, verdict=self.verdicts.get(step.value, step.verdict)) for step in steps)

    def step(self, value: float) -> Step:
        return next(step for step in self.steps if step.value == value)

    def with_step(self, step: Step) -> "Search":
        """Return the search after this step, which replaces an earlier one at its value."""
        tried = [each for each in self.tried if each.value != step.value]
        tried += [Tried(step.value, seed, repeat) for seed, repeat in enumerate(step.repeats)]
        return replace(self, tried=tuple(tried), verdicts={**self.verdicts, step.value: step.verdict})

    @property
    def passed(self) -> dict[float, bool]:
        """The values that were tried on every seed, and whether they pass."""
        return {step.value: step.verdict == "passes" for step in self.steps}

    @property
    def _met(self) -> dict[int, dict[float, bool]]:
        """Seed -> value -> whether it meets every target; a point that failed meets none."""
        met: dict[int, dict[float, bool]] = {seed: {} for seed in self.question.seeds}
        for value, seed, repeat in self.tried:
            met[seed][value] = repeat.meets(self.question.targets)
        return met

    @property
    def wanted(self) -> list[tuple[float, int]]:
        """Values and seeds to measure next; none when the search is over."""
        bounds, met = self.question.bounds, self._met
        value = bounds.following(self.passed)
        if value is not None:
            return [(value, seed) for seed, values in met.items() if value not in values]
        following = {seed: bounds.following(values) for seed, values in met.items()}
        return [(value, seed) for seed, value in following.items() if value is not None]

    @property
    def ahead(self) -> Iterator[tuple[float, int]]:
        """Values and seeds that may be wanted after `wanted`, whatever comes out: the nearest decisions first."""
        following, seeds = self.question.bounds.following, self.question.seeds
        known = {(value, seed) for value, seed, _ in self.tried} | set(self.wanted)
        together = following(self.passed) is not None
        paths = deque([(seeds, self.passed)] if together else [((seed,), met) for seed, met in self._met.items()])
        while paths:
            of, passed = paths.popleft()
            if (value := following(passed)) is None:
                continue
            yield from ((value, seed) for seed in of if (value, seed) not in known)
            known |= {(value, seed) for seed in of}
            paths.extend((of, {**passed, value: passes}) for passes in (True, False))

    @property
    def holds(self) -> float | None:
        """The largest value that passes; None where the smallest does not."""
        return holding(self.passed)

    @property
    def stops(self) -> float | None:
        """The smallest value that does not pass, for whatever reason; None where the largest does."""
        return breaking(self.passed)

    @property
    def breaks(self) -> float | None:
        """The smallest value above `holds` that fails."""
        return self._above("fails")

    @property
    def unmeasured(self) -> float | None:
        """The value at which the search ended because it could not be measured. None where a smaller one above `holds`
        failed: then the answer does not depend on it."""
        value, breaks = self._above("invalid"), self.breaks
        return value if value is not None and (breaks is None or value < breaks) else None

    @property
    def undecided(self) -> list[float]:
        """The values between `holds` and the smallest failed one that had too few turns to decide."""
        low, most = self.holds or 0, self.breaks or float("inf")
        return [s.value for s in self.steps if s.verdict == "undecided" and low < s.value < most]

    def _above(self, verdict: Outcome) -> float | None:
        above = (s.value for s in self.steps if s.verdict == verdict and s.value > (self.holds or 0))
        return min(above, default=None)

    @property
    def verdict(self) -> Verdict:
        """PASS: a value passes, and why no larger one does is known. FAIL: not even the smallest passes. Else
        INCONCLUSIVE."""
        if self.unmeasured is not None:
            return INCONCLUSIVE
        if self.holds is not None:
            return PASS
        return FAIL if self.steps and self.steps[0].verdict == "fails" else INCONCLUSIVE

    @property
    def interval(self) -> Interval:
        by_seed = [holding(met) for met in self._met.values()]
        ranked = sorted(by_seed, key=lambda value: -1.0 if value is None else value)
        numbers = [value for value in ranked if value is not None]
        middle = median(numbers) if len(numbers) == len(ranked) else ranked[(len(ranked) - 1) // 2]
        return Interval(ranked[0], middle, ranked[-1])

    @property
    def surprises(self) -> dict[int, tuple[float, float]]:
        """Seeds that missed a target at a smaller value than one at which they met all."""
        pairs = {seed: surprising(met) for seed, met in self._met.items()}
        return {seed: pair for seed, pair in pairs.items() if pair is not None}

    @property
    def answer(self) -> str:
        """The finding, in one sentence without its subject."""
        amount, holds, breaks, unmeasured = self.question.amount, self.holds, self.breaks, self.unmeasured
        undecided = "".join(f"; {n:g}: {INCONCLUSIVE}" for n in self.undecided)
        if holds is None:
            first = self.steps[0]
            if unmeasured is not None:
                return f"was not measured at any number: at {amount(unmeasured)} {self._lost(unmeasured)}."
            if first.verdict == "undecided":
                return f"may or may not handle {amount(first.value)}: too few turns to decide."
            return f"cannot handle even {amount(first.value)}: {self._shortfall(first.value)}."
        shown = [i for i in range(len(self.question.targets)) if not self._no_failures(self.step(holds), i)]
        values = ", ".join(self._values(self.step(holds), i, bound=True) for i in shown) + undecided
        if unmeasured is not None:
            missed = "" if breaks is None else f"; at {breaks:g} {self._shortfall(breaks)}"
            return (
                f"can handle at least {amount(holds)}, the most that passed: {values}; "
                f"at {unmeasured:g} {self._lost(unmeasured)}{missed}."
            )
        if breaks is None:
            why = "" if undecided else ", the most that were tried"
            return f"can handle at least {amount(holds)}{why}: {values}."
        return f"can handle {amount(holds)}: {values}; at {breaks:g} {self._shortfall(breaks)}."

    def _shortfall(self, value: float) -> str:
        """Return which targets a value misses, or that it could not be measured."""
        step = self.step(value)
        missed = [
            i
            for i, target in enumerate(self.question.targets)
            if any(not r.error and not target.met(r.values[i]) for r in step.repeats)
        ]
        return ", ".join(self._values(step, i, bound=False) for i in missed) or self._lost(value)

    def _lost(self, value: float) -> str:
        error = next((repeat.error for repeat in self.step(value).repeats if repeat.error), "no value")
        return f"it could not be measured ({error})"

    def _no_failures(self, step: Step, index: int) -> bool:
        """Return whether a target is on failed turns, and there were none to name."""
        failed = self.question.targets[index].metric == FAILED_SHARE
        return failed and not any(repeat.values[index] for repeat in step.repeats)

    def _values(self, step: Step, index: int, bound: bool) -> str:
        target = self.question.targets[index]
        values = sorted(v for r in step.repeats if not r.error and (v := r.values[index]) is not None)
        if not values:
            return f"{name_of(target.metric)} is missing"
        text = f"{name_of(target.metric)} {number(target.metric, float(median(values)))}"
        if len(values) > 1:
            low, high = (number(target.metric, end, unit=False) for end in (values[0], values[-1]))
            text += f" ({low}–{high})"
        return f"{text} {target.asked}" if bound else text


def search(measure: Callable[[int, int], Step], question: Question) -> Search:
    """Measure whole numbers until the largest passing one lies close below a failing one, or one cannot be measured.

    `measure(n, k)` measures a number k times its repeats; it measures again only repeats that could not be measured.
    """
    result = Search(question)
    while (value := question.bounds.following(result.passed)) is not None:
        step = _measured(measure, int(value), 1)
        if step.verdict == "undecided":
            step = _measured(measure, int(value), 2)
        result = result.with_step(step)
        if step.verdict == "invalid":
            break
    return result


def _measured(measure: Callable[[int, int], Step], n: int, times: int) -> Step:
    step = measure(n, times)
    for _ in range(AGAIN):
        if step.verdict != "invalid":
            break
        step = measure(n, times)
    return step


@dataclass(frozen=True)
class Searches:
    """One search for each engine and setting; of an endpoint one."""

    question: Question
    searched: tuple[Search, ...]

    @property
    def points(self) -> set[str]:
        """The ids of the points that were tried."""
        return {each.repeat.point for one in self.searched for each in one.tried}

    def as_dict(self) -> dict[str, Any]:
        """Return the content of search.json."""
        question = asdict(self.question)
        return {
            "schema_version": 2,
            **question,
            "searched": [
                {
                    "engine": one.engine,
                    "settings": dict(one.settings),
                    "holds": one.holds,
                    "breaks": one.breaks,
                    "unmeasured": one.unmeasured,
                    "verdict": one.verdict,
                    "sentence": one.answer,
                    "verdicts": [[step.value, step.verdict] for step in one.steps],
                    "tried": [{"value": t.value, "seed": t.seed, **t.repeat.as_dict()} for t in one.tried],
                }
                for one in self.searched
            ],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Searches":
        """Make the searches of the content of search.json."""
        targets = tuple(Target(**target) for target in data["targets"])
        bounds, seeds = Bounds(**data["bounds"]), tuple(data["seeds"])
        question = Question(data["over"], targets, bounds, seeds, data.get("counts", ""))
        return cls(
            question,
            tuple(
                Search(
                    question,
                    tuple(Tried(t["value"], t["seed"], Repeat.from_dict(t)) for t in one["tried"]),
                    {value: verdict for value, verdict in one.get("verdicts", ())},
                    one["engine"],
                    one["settings"],
                )
                for one in data["searched"]
            ),
        )


def load_searches(folder: Path, measured: Iterable[str]) -> Searches | None:
    """Return the searches of a results directory; None where there are none, or another run into the same directory
    came after them. `measured`: ids of its points. UserError for a damaged file."""
    path = folder / SEARCH
    if not path.is_file():
        return None
    try:
        searches = Searches.from_dict(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{path} is damaged; delete it and search again.") from None
    return searches if searches.points <= set(measured) else None
