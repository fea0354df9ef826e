"""How many calls an endpoint can handle: the largest number that passes.

Searched by `harness.slo.search`. Over sockets a number passes, fails or stays undecided by the same rule as in any live
run (`harness.slo.judgement`); in virtual time it passes when every repeat meets every target. Turns that failed count
as infinitely late: no endpoint gets faster by dropping its callers. A number that stays undecided is measured once
more, with as many repeats again. If that does not decide it, it does not count as passed. A number that could not be
measured, because a machine was too slow, says nothing about the endpoint: it is tried again, and if that does not help,
the search ends INCONCLUSIVE.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from harness.slo.judgement import FAIL, INCONCLUSIVE, PASS, Verdict
from harness.slo.search import Bounds
from harness.slo.targets import Repeat, Target, name_of, number

CAPACITY = "capacity.json"
"""The search, beside the results of its points."""
EARLIER_NAME = "knee.json"
"""Former name of the file. A directory of that time is still read."""
FIRST = 8
"""Calls to begin with where no number is given. [chosen]"""
CLOSE = 6
"""The search ends when the gap above N is at most N / 6: 48 holds, 56 does not. [chosen]"""
AGAIN = 2
"""So often a number that could not be measured is tried again. [chosen]"""


Outcome = Literal["passes", "fails", "undecided", "invalid"]
SHOWN: dict[Outcome, str] = {"passes": PASS, "fails": FAIL, "undecided": INCONCLUSIVE, "invalid": "INVALID"}


@dataclass(frozen=True)
class Step:
    """All repeats at one number of sessions, or at one value of whatever a search is over. `verdict`: passes, fails,
    too few turns decide, or it could not be measured."""

    sessions: float
    repeats: tuple[Repeat, ...]
    verdict: Outcome


@dataclass(frozen=True)
class Capacity:
    """The result of a search. `holds`: largest number that passed. `breaks`: smallest larger one that failed.
    `unmeasured`: the number at which the search ended because it could not be measured. `counts`: the unit of the
    numbers."""

    targets: tuple[Target, ...]
    steps: tuple[Step, ...]
    up_to: float
    counts: str = "call"

    @property
    def holds(self) -> float | None:
        return max((step.sessions for step in self.steps if step.verdict == "passes"), default=None)

    @property
    def breaks(self) -> float | None:
        return self._above("fails")

    @property
    def unmeasured(self) -> float | None:
        """None where a smaller number above `holds` failed: that is an answer without it."""
        number, breaks = self._above("invalid"), self.breaks
        return number if number is not None and (breaks is None or number < breaks) else None

    @property
    def verdict(self) -> Verdict:
        """PASS: a number passes, and why no larger one does is known. FAIL: not even the smallest passes. Else
        INCONCLUSIVE."""
        if self.unmeasured is not None:
            return INCONCLUSIVE
        if self.holds is not None:
            return PASS
        return FAIL if self.steps and self.steps[0].verdict == "fails" else INCONCLUSIVE

    @property
    def undecided(self) -> list[float]:
        """The numbers between `holds` and the smallest that failed that had too few turns to decide."""
        most = self.breaks or float("inf")
        return [
            step.sessions
            for step in self.steps
            if step.verdict == "undecided" and (self.holds or 0) < step.sessions < most
        ]

    def amount(self, n: float) -> str:
        """`16 calls`."""
        return f"{n:g} {self.counts}{'' if n == 1 else 's'}"

    def _above(self, verdict: str) -> float | None:
        """The smallest number with this verdict above what holds."""
        above = (s.sessions for s in self.steps if s.verdict == verdict and s.sessions > (self.holds or 0))
        return min(above, default=None)

    def step(self, sessions: float) -> Step:
        return next(step for step in self.steps if step.sessions == sessions)


def judge(sessions: float, repeats: Sequence[Repeat], targets: Sequence[Target]) -> Step:
    """By the values alone: passes when every repeat was measured and meets every target; fails when one misses some."""
    failing = [repeat for repeat in repeats if not repeat.error and not repeat.meets(targets)]
    invalid = [repeat for repeat in repeats if repeat.error]
    verdict = "fails" if failing else "invalid" if invalid else "passes"
    return Step(sessions, tuple(repeats), verdict)


def search(
    measure: Callable[[int, int], Step],
    targets: Sequence[Target],
    up_to: int,
    first: int = FIRST,
    counts: str = "call",
) -> Capacity:
    """Measure numbers of sessions until the capacity lies between two that are close, or `up_to` passes, or 1 fails, or
    one cannot be measured. `measure(n, k)` gives a number k times its repeats; it measures again only what could not be
    measured."""
    steps: dict[float, Step] = {}
    bounds = Bounds(1, up_to, first, whole=True, close=CLOSE)
    while (n := bounds.following({n: step.verdict == "passes" for n, step in steps.items()})) is not None:
        steps[n] = _measured(measure, int(n), 1)
        if steps[n].verdict == "undecided":
            steps[n] = _measured(measure, int(n), 2)
        if steps[n].verdict == "invalid":
            break
    return Capacity(tuple(targets), tuple(steps[n] for n in sorted(steps)), up_to, counts)


def _measured(measure: Callable[[int, int], Step], n: int, times: int) -> Step:
    step = measure(n, times)
    for _ in range(AGAIN):
        if step.verdict != "invalid":
            break
        step = measure(n, times)
    return step


def answer(capacity: Capacity, amount: Callable[[float], str] | None = None) -> str:
    """The capacity in one sentence. `amount`: how a value is said; default: as what the numbers count."""
    amount = amount or capacity.amount
    holds, breaks, unmeasured = capacity.holds, capacity.breaks, capacity.unmeasured
    undecided = "".join(f"; {n:g}: {INCONCLUSIVE}" for n in capacity.undecided)
    if holds is None:
        first = capacity.steps[0]
        if unmeasured is not None:
            return f"was not measured at any number: at {amount(unmeasured)} {_lost(capacity, unmeasured)}."
        if first.verdict == "undecided":
            return f"may or may not handle {amount(first.sessions)}: too few turns to decide."
        return f"cannot handle even {amount(first.sessions)}: {_shortfall(capacity, first)}."
    told = ", ".join(
        _told(capacity, capacity.step(holds), i, bound=True) for i in range(len(capacity.targets))
    )
    if unmeasured is not None:
        missed = "" if breaks is None else f"; at {breaks:g} {_shortfall(capacity, capacity.step(breaks))}"
        return (
            f"can handle at least {amount(holds)}, the most that passed: {told}{undecided}; "
            f"at {unmeasured:g} {_lost(capacity, unmeasured)}{missed}."
        )
    if breaks is None:
        why = "" if undecided else ", the most that were tried"
        return f"can handle at least {amount(holds)}{why}: {told}{undecided}."
    shortfall = _shortfall(capacity, capacity.step(breaks))
    return f"can handle {amount(holds)}: {told}{undecided}; at {breaks:g} {shortfall}."


def _shortfall(capacity: Capacity, step: Step) -> str:
    """Which targets a step misses, or that it could not be measured."""
    missed = [
        i
        for i, target in enumerate(capacity.targets)
        if any(not r.error and not target.met(r.values[i]) for r in step.repeats)
    ]
    if missed:
        return ", ".join(_told(capacity, step, i, bound=False) for i in missed)
    return _lost(capacity, step.sessions)


def _lost(capacity: Capacity, sessions: float) -> str:
    error = next((repeat.error for repeat in capacity.step(sessions).repeats if repeat.error), "no value")
    return f"it could not be measured ({error})"


def _told(capacity: Capacity, step: Step, index: int, bound: bool) -> str:
    target = capacity.targets[index]
    known = sorted(v for r in step.repeats if not r.error and (v := r.values[index]) is not None)
    name = name_of(target.metric)
    if not known:
        return f"{name} is missing"
    text = f"{name} {number(target.metric, float(np.median(known)))}"
    if len(known) > 1:
        text += (
            f" ({number(target.metric, known[0], unit=False)}–{number(target.metric, known[-1], unit=False)})"
        )
    return f"{text} {target.asked}" if bound else text


def as_dict(capacity: Capacity) -> dict[str, Any]:
    """For capacity.json."""
    return {
        "schema_version": 1,
        "targets": [{"metric": t.metric, "op": t.op, "bound": t.bound} for t in capacity.targets],
        "up_to": capacity.up_to,
        "counts": capacity.counts,
        "holds": capacity.holds,
        "breaks": capacity.breaks,
        "unmeasured": capacity.unmeasured,
        "verdict": capacity.verdict,
        "sentence": answer(capacity),
        "steps": [
            {
                "sessions": step.sessions,
                "verdict": step.verdict,
                "repeats": [repeat.as_dict() for repeat in step.repeats],
            }
            for step in capacity.steps
        ],
    }


def from_dict(data: dict[str, Any]) -> Capacity:
    """The capacity in capacity.json."""
    targets = tuple(Target(**target) for target in data["targets"])
    steps = tuple(
        Step(step["sessions"], tuple(Repeat.from_dict(each) for each in step["repeats"]), step["verdict"])
        for step in data["steps"]
    )
    return Capacity(targets, steps, data["up_to"], data.get("counts", "call"))
