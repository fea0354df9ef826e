"""How many calls an endpoint holds: the largest number at which every repeat meets every target.

Doubling until one fails, then halving the gap. A number passes when all of its repeats pass; the search takes what it
finds for monotone. Turns that failed count as infinitely late: no endpoint gets faster by dropping its callers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from harness.metrics.definitions import DEFINITIONS, DISTRIBUTIONS
from harness.metrics.frame_definitions import definition
from harness.metrics.live_definitions import LIVE_DEFINITIONS
from harness.metrics.live_window import counted
from harness.metrics.requests import BARGED_IN
from workloads.errors import UserError, nearest

CAPACITY = "capacity.json"
"""The search, beside the results of its points."""
EARLIER_NAME = "knee.json"
"""What it was called before; a directory of that time is still read."""
FIRST = 8
"""Calls to begin with where no number is given. [chosen]"""
CLOSE = 6
"""The search ends when the gap above N is at most N / 6: 48 holds, 56 does not. [chosen]"""

_ALIASES = {"ttfp": "audio_ttfp"}
_TARGET = re.compile(r"([A-Za-z0-9_.-]+)\s*(<=|>=)\s*([0-9.eE+-]+)(%?)")


@dataclass(frozen=True)
class Target:
    """One condition on a metric, in the metric's own unit."""

    metric: str
    op: Literal["<=", ">="]
    bound: float

    def met(self, value: float | None) -> bool:
        """A missing value meets nothing."""
        if value is None or math.isnan(value):
            return False
        return value <= self.bound if self.op == "<=" else value >= self.bound


@dataclass(frozen=True)
class Repeat:
    """One measured run: the value of each target's metric, in their order, and why it does not count, if so."""

    point: str
    values: tuple[float | None, ...]
    error: str = ""


@dataclass(frozen=True)
class Step:
    """All repeats at one number of sessions. `verdict`: passes, fails, or the generator could not measure it."""

    sessions: int
    repeats: tuple[Repeat, ...]
    verdict: Literal["passes", "fails", "invalid"]


@dataclass(frozen=True)
class Capacity:
    """What a search found. `holds`: largest number that passed; `breaks`: smallest larger one that did not."""

    targets: tuple[Target, ...]
    steps: tuple[Step, ...]
    up_to: int

    @property
    def holds(self) -> int | None:
        return max((step.sessions for step in self.steps if step.verdict == "passes"), default=None)

    @property
    def breaks(self) -> int | None:
        above = (s.sessions for s in self.steps if s.verdict != "passes" and s.sessions > (self.holds or 0))
        return min(above, default=None)

    def step(self, sessions: int) -> Step:
        return next(step for step in self.steps if step.sessions == sessions)


def parse_targets(text: str) -> tuple[Target, ...]:
    """Targets as in `ttfp_p90<=1.0 continuity>=0.95`; UserError for what is none, or the wrong way round."""
    left = _TARGET.sub("", text).replace(",", " ").strip()
    found = _TARGET.findall(text)
    if left or not found:
        raise UserError(
            f"--find {text!r} is no list of targets{f' ({left!r} is none)' if left and found else ''}; write for "
            'example --find "ttfp_p90<=1.0 continuity>=0.95".'
        )
    return tuple(_target(*parts) for parts in found)


def _target(name: str, op: Literal["<=", ">="], number: str, percent: str) -> Target:
    family, _, statistic = name.rpartition("_")
    metric = f"{_ALIASES[family]}_{statistic}" if family in _ALIASES else name
    try:
        meaning = definition(metric)
    except KeyError:
        known = [*DEFINITIONS, *LIVE_DEFINITIONS, "ttfp_p50", "ttfp_p90", "ttfp_p95", "ttfp_p99"]
        several = [each for each in known if each.rpartition("_")[0] == name]
        if several:
            asked = f"{op}{number}{percent}"
            raise UserError(
                f"--find {name}{asked}: there is no {name} by itself, but {', '.join(several)}; write for example "
                f"{several[min(1, len(several) - 1)]}{asked}."
            ) from None
        raise UserError(f"--find: unknown metric {name!r}.{nearest(name, known)}") from None
    try:
        bound = float(number) / (100 if percent else 1)
    except ValueError:
        raise UserError(
            f"--find {name}{op}{number}: {number!r} is no number; write for example {name}{op}1."
        ) from None
    wanted = {"lower": "<=", "higher": ">="}.get(meaning.better or "", op)
    if op != wanted:
        raise UserError(
            f"--find {name}{op}{number}: {meaning.better} is better; write {name}{wanted}{number}."
        )
    return Target(metric, op, bound)


def judged_value(metric: str, metrics: dict[str, dict[str, Any]], requests: pd.DataFrame) -> float | None:
    """A metric as a target judges it: percentiles and means take turns without a value for infinitely late ones."""
    family, _, statistic = metric.rpartition("_")
    found = metrics.get(metric)
    if found is None:
        return None
    distribution = DISTRIBUTIONS.get(family)
    if distribution is None or statistic not in distribution.statistics or not found["missing"]:
        return found["value"]
    requests = counted(requests)
    among = np.ones(len(requests), bool)
    if distribution.spoken_only:
        among &= requests["spoken"].to_numpy(bool)
    if distribution.whole_only:
        among &= requests["status"].to_numpy() != BARGED_IN
    values = requests[distribution.column].to_numpy(float)[among]
    known = np.sort(values[~np.isnan(values)])
    if not among.any() or statistic == "mean":
        return math.inf if among.any() else None
    rank = float(statistic[1:]) / 100 * (among.sum() - 1)
    above = math.ceil(rank)
    return math.inf if above >= known.size else float(np.interp(rank, np.arange(known.size), known))


def judge(sessions: int, repeats: Sequence[Repeat], targets: Sequence[Target]) -> Step:
    """Passes when every repeat was measured and meets every target; one that meets not, fails it."""
    failing = [
        repeat
        for repeat in repeats
        if not repeat.error and not all(t.met(v) for t, v in zip(targets, repeat.values, strict=True))
    ]
    invalid = [repeat for repeat in repeats if repeat.error]
    verdict = "fails" if failing else "invalid" if invalid else "passes"
    return Step(sessions, tuple(repeats), verdict)


def search(
    measure: Callable[[int], Step], targets: Sequence[Target], up_to: int, first: int = FIRST
) -> Capacity:
    """Measure numbers of sessions until the capacity lies between two that are close, or `up_to` passes, or 1 fails."""
    steps: dict[int, Step] = {}
    low, high, n = 0, 0, min(first, up_to)
    while n and n not in steps:
        steps[n] = measure(n)
        if steps[n].verdict == "passes":
            low = n
        else:
            high = n
        n = _next(low, high, up_to)
    return Capacity(tuple(targets), tuple(steps[n] for n in sorted(steps)), up_to)


def _next(low: int, high: int, up_to: int) -> int:
    """The next number between one that passed and one that did not (0: none so far); 0 when done."""
    if not high:
        return min(2 * low, up_to) if low < up_to else 0
    if high - low <= max(1, low // CLOSE):
        return 0
    return (low + high) // 2


def answer(capacity: Capacity) -> str:
    """The capacity in one sentence."""
    holds, breaks = capacity.holds, capacity.breaks
    if holds is None:
        first = capacity.steps[0]
        return f"holds not even {_calls(first.sessions)}: {_shortfall(capacity, first)}."
    told = ", ".join(
        _told(capacity, capacity.step(holds), i, bound=True) for i in range(len(capacity.targets))
    )
    if breaks is None:
        return f"holds {_calls(holds)} at least, the most that were tried: {told}."
    return f"holds {_calls(holds)}: {told}; at {breaks} {_shortfall(capacity, capacity.step(breaks))}."


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
    sign = {"<=": "≤", ">=": "≥"}[target.op]
    return f"{text} {sign} {number(target.metric, target.bound)}" if bound else text


def name_of(metric: str) -> str:
    """As people say it: P90 TTFP."""
    family, _, statistic = metric.rpartition("_")
    if family in DISTRIBUTIONS:
        said = {"audio_ttfp": "TTFP", "ttft": "TTFT"}.get(family, family.replace("_", " "))
        return f"{statistic.upper()} {said}"
    return metric.replace("_", " ")


def number(metric: str, value: float, unit: bool = True) -> str:
    """A value of a metric with its unit; shares in %."""
    if math.isinf(value):
        return "∞"
    meaning = definition(metric)
    if meaning.unit == "s":
        return f"{value:.3g}{' s' if unit else ''}"
    if (meaning.unit == "1" and "share" in meaning.definition) or "ratio" in metric:
        return f"{100 * value:.1f}{' %' if unit else ''}"
    return f"{value:g}{' ' + meaning.unit if unit and meaning.unit != '1' else ''}"


def _calls(n: int) -> str:
    return f"{n} call{'' if n == 1 else 's'}"


def as_dict(capacity: Capacity) -> dict[str, Any]:
    """For capacity.json. Infinite values, of turns that failed, are written as the string "inf"."""

    def plain(value: float | None) -> float | str | None:
        return "inf" if value is not None and math.isinf(value) else value

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
                "repeats": [
                    {"point": r.point, "values": [plain(v) for v in r.values], "error": r.error}
                    for r in step.repeats
                ],
            }
            for step in capacity.steps
        ],
    }


def from_dict(data: dict[str, Any]) -> Capacity:
    """The capacity in capacity.json."""
    targets = tuple(Target(**target) for target in data["targets"])
    steps = tuple(
        Step(
            step["sessions"],
            tuple(
                Repeat(r["point"], tuple(None if v is None else float(v) for v in r["values"]), r["error"])
                for r in step["repeats"]
            ),
            step["verdict"],
        )
        for step in data["steps"]
    )
    return Capacity(targets, steps, data["up_to"])
