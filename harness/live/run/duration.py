"""The length of a live run that decides its targets, known from its users before the first call.

A target needs a number of turns (`harness.live.verdict.needed`); the users say how many there will be. The numbers
hold for a server that answers in half the time that its targets allow. A faster one gives more turns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness.client.client_params import ClientParams
from harness.live.run.forecast import Counts, expected_counts, expected_phases
from harness.live.verdict import needed
from harness.metrics.vocabulary import definition
from harness.slo.targets import Target, is_sampled
from workloads.trace import Trace

SHORTEST_S, LONGEST_S = 30.0, 480.0
"""[chosen] Shortest and longest run, s, where the user gave no length."""
STEP_S = 5.0
"""Lengths are multiples of it. [chosen]"""
TRIES, MOST_S = 10, 20_000.0
"""Tries, and length in s, after which no length counts as long enough. [chosen]"""

Users = Callable[[float], tuple[Trace, ClientParams]]
"""The users of one run of this length, s."""


@dataclass(frozen=True)
class Duration:
    """The length of each run of one load, s. `wanted_s`: the length at which every decidable target is decided."""

    seconds: float
    wanted_s: float
    turns: int
    """Expected of all runs together."""
    per_minute: float
    """Turns a minute that one run is expected to count."""
    needed: int
    lacking: tuple[Target, ...]
    """Targets that stay undecided."""

    @property
    def enough(self) -> bool:
        return not self.lacking


def planned(users: Users, targets: Sequence[Target], runs: int) -> Duration:
    """Return the shortest length with turns enough for every target, at most `LONGEST_S`."""
    wanted_s = _enough(users, targets, runs)
    seconds = min(max(wanted_s, SHORTEST_S), LONGEST_S)
    return _at(seconds, wanted_s, users, targets, runs)


def given(seconds: float, users: Users, targets: Sequence[Target], runs: int) -> Duration:
    """Return the duration for a length that the user gave."""
    found = _at(seconds, seconds, users, targets, runs)
    return found if found.enough else replace(found, wanted_s=_enough(users, targets, runs))


def _at(seconds: float, wanted_s: float, users: Users, targets: Sequence[Target], runs: int) -> Duration:
    counts = _counts(users, seconds, targets)
    steady_s = seconds - expected_phases(*users(seconds)).ramp_s
    lacking = tuple(each for each in targets if (n := needed(each)) is None or runs * _of(each, counts) < n)
    least = max((n for each in targets if (n := needed(each)) is not None), default=1)
    turns = min((_of(each, counts) for each in targets), default=counts.turns)
    per_minute = 60 * turns / steady_s if steady_s > 0 else 0.0
    return Duration(seconds, wanted_s, runs * turns, per_minute, least, lacking)


def _enough(users: Users, targets: Sequence[Target], runs: int) -> float:
    """Return the shortest multiple of `STEP_S` that decides every decidable target; found by trying, as users
    differ."""
    seconds = SHORTEST_S
    for _ in range(TRIES):
        counts = _counts(users, seconds, targets)
        rare = 2.0 if seconds < LONGEST_S else 0.0  # of what does not occur even then there is none
        share = max(
            (
                n / (runs * found) if (found := _of(each, counts)) else rare
                for each in targets
                if (n := needed(each)) is not None
            ),
            default=0.0,
        )
        if share <= 1:
            return seconds
        following = math.ceil(seconds * min(share, 4.0) / STEP_S) * STEP_S
        seconds = max(following, seconds + STEP_S)
        if seconds > MOST_S:
            break
    return math.inf


def _counts(users: Users, seconds: float, targets: Sequence[Target]) -> Counts:
    bounds_s = [t.bound for t in targets if is_sampled(t.metric) and definition(t.metric).unit == "s"]
    trace, client = users(seconds)
    return expected_counts(trace, client, min(bounds_s, default=0.0) / 2)


def _of(target: Target, counts: Counts) -> int:
    said = definition(target.metric)
    text = f"{said.definition} {said.origin}"
    if "interruptions" in text and "false" not in text:
        return counts.interrupted
    whole = "not interrupted" in text or "without barged-in" in text
    return counts.whole if whole else counts.turns
