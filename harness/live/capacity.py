"""How many calls an endpoint holds: the largest number at which every repeat meets every target.

Searched by `harness.bisection`. A number passes when all of its repeats pass. Turns that failed count as infinitely
late: no endpoint gets faster by dropping its callers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rehearsal.harness.bisection import Bounds
from rehearsal.harness.targets import SIGN, Repeat, Target, name_of, number

CAPACITY = "capacity.json"
"""The search, beside the results of its points."""
EARLIER_NAME = "knee.json"
"""What it was called before; a directory of that time is still read."""
FIRST = 8
"""Calls to begin with where no number is given. [chosen]"""
CLOSE = 6
"""The search ends when the gap above N is at most N / 6: 48 holds, 56 does not. [chosen]"""


@dataclass(frozen=True)
class Step:
    """All repeats at one number of sessions, or at one value of whatever a search is over. `verdict`: passes, fails, or
    it could not be measured."""

    sessions: float
    repeats: tuple[Repeat, ...]
    verdict: Literal["passes", "fails", "invalid"]


@dataclass(frozen=True)
class Capacity:
    """What a search found. `holds`: largest number that passed; `breaks`: smallest larger one that did not."""

    targets: tuple[Target, ...]
    steps: tuple[Step, ...]
    up_to: float

    @property
    def holds(self) -> float | None:
        return max((step.sessions for step in self.steps if step.verdict == "passes"), default=None)

    @property
    def breaks(self) -> float | None:
        above = (s.sessions for s in self.steps if s.verdict != "passes" and s.sessions > (self.holds or 0))
        return min(above, default=None)

    def step(self, sessions: float) -> Step:
        return next(step for step in self.steps if step.sessions == sessions)


def judge(sessions: float, repeats: Sequence[Repeat], targets: Sequence[Target]) -> Step:
    """Passes when every repeat was measured and meets every target; one that meets not, fails it."""
    failing = [repeat for repeat in repeats if not repeat.error and not repeat.meets(targets)]
    invalid = [repeat for repeat in repeats if repeat.error]
    verdict = "fails" if failing else "invalid" if invalid else "passes"
    return Step(sessions, tuple(repeats), verdict)


def search(
    measure: Callable[[int], Step], targets: Sequence[Target], up_to: int, first: int = FIRST
) -> Capacity:
    """Measure numbers of sessions until the capacity lies between two that are close, or `up_to` passes, or 1 fails."""
    steps: dict[float, Step] = {}
    bounds = Bounds(1, up_to, first, whole=True, close=CLOSE)
    while (n := bounds.following({n: step.verdict == "passes" for n, step in steps.items()})) is not None:
        steps[n] = measure(int(n))
    return Capacity(tuple(targets), tuple(steps[n] for n in sorted(steps)), up_to)


def _calls(n: float) -> str:
    return f"{n:g} call{'' if n == 1 else 's'}"


def answer(capacity: Capacity, amount: Callable[[float], str] = _calls) -> str:
    """The capacity in one sentence. `amount`: how a value is said."""
    holds, breaks = capacity.holds, capacity.breaks
    if holds is None:
        first = capacity.steps[0]
        return f"holds not even {amount(first.sessions)}: {_shortfall(capacity, first)}."
    told = ", ".join(
        _told(capacity, capacity.step(holds), i, bound=True) for i in range(len(capacity.targets))
    )
    if breaks is None:
        return f"holds {amount(holds)} at least, the most that were tried: {told}."
    return f"holds {amount(holds)}: {told}; at {breaks:g} {_shortfall(capacity, capacity.step(breaks))}."


def _shortfall(capacity: Capacity, step: Step) -> str:
    """Which targets a step misses, or that it could not be measured."""
    missed = [
        i
        for i, target in enumerate(capacity.targets)
        if any(not r.error and not target.met(r.values[i]) for r in step.repeats)
    ]
    if missed:
        return ", ".join(_told(capacity, step, i, bound=False) for i in missed)
    error = next(repeat.error for repeat in step.repeats if repeat.error)
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
    return f"{text} {SIGN[target.op]} {number(target.metric, target.bound)}" if bound else text


def as_dict(capacity: Capacity) -> dict[str, Any]:
    """For capacity.json."""
    return {
        "schema_version": 1,
        "targets": [{"metric": t.metric, "op": t.op, "bound": t.bound} for t in capacity.targets],
        "up_to": capacity.up_to,
        "holds": capacity.holds,
        "breaks": capacity.breaks,
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
    return Capacity(targets, steps, data["up_to"])
