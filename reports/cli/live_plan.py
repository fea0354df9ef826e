"""The duration of each load of a live run, and the sentences printed before the calls begin."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import typer

from reports.tables.labels import counted

if TYPE_CHECKING:
    from harness.client.client_params import ClientParams
    from harness.experiments.expand import Traces
    from harness.experiments.experiment import Experiment
    from harness.live.run.duration import Duration
    from harness.slo.targets import Target
    from workloads.trace import Trace

Ask = Callable[[Sequence[float], Sequence[float]], "Experiment"]
"""Returns the experiment with these loads, each called for this number of seconds."""


@dataclass
class Plan:
    """Durations of the loads. `seconds`: of every load, as the user set it; None: until its targets can be decided.
    `known`: durations of resumed loads. `name`: a load in words. `traces`: traces made on the way."""

    ask: Ask
    targets: tuple[Target, ...]
    runs: int
    seconds: float | None
    name: Callable[[float], str]
    known: Mapping[float, float] = field(default_factory=dict)
    traces: Traces = field(default_factory=dict)
    _found: dict[float, float] = field(default_factory=dict)

    def experiment(self, amounts: Sequence[float]) -> Experiment:
        """Return the experiment with these loads, each as long as planned, and print new durations."""
        for amount in amounts:
            if amount not in self._found:
                self._found[amount] = self.known.get(amount) or self._planned(amount)
        return self.ask(amounts, [self._found[amount] for amount in amounts])

    def _planned(self, amount: float) -> float:
        from harness.experiments.expand import expand
        from harness.live.run.duration import given, planned

        def users(seconds: float) -> tuple[Trace, ClientParams]:
            asked = self.ask([amount], [seconds])
            point = expand(asked.model_copy(update={"seeds": asked.seeds[:1]}), self.traces)[0]
            trace = next(each for each in self.traces.values() if each.header.hash == point.trace_hash)
            return trace, point.setup.client

        if not self.targets:
            return self.seconds or 60.0
        if self.seconds is None:
            found = planned(users, self.targets, self.runs)
        else:
            found = given(self.seconds, users, self.targets, self.runs)
        for line in said(found, self.name(amount), self.runs, self.seconds is not None):
            typer.echo(line, err=True)
        return found.seconds


def said(found: Duration, name: str, runs: int, chosen: bool) -> list[str]:
    """`8 calls: about 24 turns per minute, 73 needed: 3 min 5 s`; for a duration set by the user only the missing
    turns."""
    from harness.live.verdict import needed

    never = [each for each in found.lacking if needed(each) is None]
    lacking = [each for each in found.lacking if needed(each) is not None]
    lines = [f"{name}: no number of turns can show {each}; give a target that leaves room." for each in never]
    names = " and ".join(map(str, lacking))
    enough = found.seconds < found.wanted_s < math.inf
    longer = f"--duration {found.wanted_s:g} is long enough" if enough else "the workload has too few of them"
    turns = counted(found.turns, "turn")
    if chosen and lacking:
        lines.append(
            f"--duration {found.seconds:g} is too short for {name}: about {turns}, {found.needed} needed to decide "
            f"{names}; {longer}."
        )
    elif not chosen:
        each = "" if runs == 1 else f"{runs} runs of "
        line = f"{name}: about {found.per_minute:.0f} turns per minute, {found.needed} needed: "
        line += f"{each}{length(found.seconds)}"
        if lacking:
            line += f", which is the limit and leaves {names} undecided; {longer}"
        lines.append(line)
    return lines


def length(seconds: float) -> str:
    """`3 min 5 s`."""
    minutes, rest = divmod(math.ceil(seconds), 60)
    return " ".join(
        [*([f"{minutes} min"] if minutes else []), *([f"{rest} s"] if rest or not minutes else [])]
    )
