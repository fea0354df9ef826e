"""The length of a live run that decides its targets, known from its users before the first call.

A target needs a number of turns (`harness.slo.targets.needed`); the users say how many there will be. The numbers
hold for a server that answers in half the time that its targets allow, and whose replies are as long as the trace says.
Where the user gives no length, the number of turns that are judged is fixed, and the run ends with the last of them
(`harness.live.run.judged_turns`): sooner where the server is faster or its replies are shorter. The length is then the
longest that it takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.client.client_params import ClientParams
from harness.live.run.forecast import Counts, expected_counts, expected_phases
from harness.metrics.vocabulary import definition
from harness.slo.targets import Target, is_sampled, judges_turns, needed
from workloads.columns.jobs import starts
from workloads.trace import Trace

SHORTEST_S, LONGEST_S = 30.0, 480.0
"""[chosen] Shortest and longest run, s, where the user gave no length."""
STEP_S = 5.0
"""Lengths are multiples of it. [chosen]"""
SPARE = 1.52
"""Turns that are judged over the fewest that can show a target: with them it is shown although one turn misses it (55,
not 36, for a P90; 560 for a P99; 111 replies for a share of 95 %). [derived from the intervals]"""
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
    judged: int | None = None
    """Turns that each run judges, after which it ends; None: it ends by time."""

    @property
    def enough(self) -> bool:
        return not self.lacking


def planned(users: Users, targets: Sequence[Target], runs: int) -> Duration:
    """Return the shortest length with turns enough for every target, at most `LONGEST_S`, and the turns to judge."""
    wanted_s = _enough(users, targets, runs, SPARE)
    seconds = min(max(wanted_s, SHORTEST_S), LONGEST_S)
    duration = _at(seconds, wanted_s, users, targets, runs)
    columns = users(seconds)[0].columns()
    if not np.isnan(columns["backlog"]).all() or len(np.unique(columns["session"])) > starts(columns).sum():
        return duration  # agents of one job, or batch jobs: their turns are not all of one kind
    return replace(duration, judged=_judged(_counts(users, seconds, targets), targets, runs))


def _judged(counts: Counts, targets: Sequence[Target], runs: int) -> int | None:
    """Return how many turns each run is to judge, so that every target has enough of its own; None where a target is
    about something else than turns, or about turns that do not occur."""
    most = 0.0
    for target in targets:
        judged, least = _of(target, counts), needed(target)
        if not judges_turns(target) or not judged or least is None:
            return None
        # Which turns are interrupted depends on the server's replies too.
        most = max(most, SPARE * least * counts.turns / judged * (1.0 if judged == counts.turns else SPARE))
    return math.ceil(most / runs) or None


def given(seconds: float, users: Users, targets: Sequence[Target], runs: int) -> Duration:
    """Return the duration for a length that the user gave."""
    duration = _at(seconds, seconds, users, targets, runs)
    return duration if duration.enough else replace(duration, wanted_s=_enough(users, targets, runs, 1.0))


def _at(seconds: float, wanted_s: float, users: Users, targets: Sequence[Target], runs: int) -> Duration:
    counts = _counts(users, seconds, targets)
    steady_s = seconds - expected_phases(*users(seconds)).ramp_s
    lacking = tuple(each for each in targets if (n := needed(each)) is None or runs * _of(each, counts) < n)
    least = max((n for each in targets if (n := needed(each)) is not None), default=1)
    turns = min((_of(each, counts) for each in targets), default=counts.turns)
    per_minute = 60 * turns / steady_s if steady_s > 0 else 0.0
    return Duration(seconds, wanted_s, runs * turns, per_minute, least, lacking)


def _enough(users: Users, targets: Sequence[Target], runs: int, spare: float) -> float:
    """Return the shortest multiple of `STEP_S` with `spare` times the turns that every decidable target needs; found
    by trying, as users differ."""
    seconds = SHORTEST_S
    for _ in range(TRIES):
        counts = _counts(users, seconds, targets)
        rare = 2.0 if seconds < LONGEST_S else 0.0  # of what does not occur even then there is none
        share = max(
            (
                spare * n / (runs * judged) if (judged := _of(each, counts)) else rare
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
    meaning = definition(target.metric)
    text = f"{meaning.definition} {meaning.origin}"
    if "interruptions" in text and "false" not in text:
        return counts.interrupted
    whole = "not interrupted" in text or "without barged-in" in text
    return counts.whole if whole else counts.turns
