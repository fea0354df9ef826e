"""Definitions of metrics, with the common ones of several vocabularies.

A vocabulary is a table of names, units, meanings, origins and directions. It stands in one file with the functions that
measure it, a file for each kind of run: `turns`, `classes`, `jobs`, `turn_taking`, `frames`, `quality` and `live`.
`metric.metrics_of` is the one loop over all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from harness.metrics.metric_name import MetricName, word_for

_SHOWN = {"s": ("ms", 1), "1/s": ("1/s", 3), "1": ("", 2)}
"""Unit -> the unit and the decimals of tables; others stay as they are, without decimals."""


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of one metric."""

    unit: str
    """s, 1 (share or count), 1/s, 1/min, token, W or J."""
    definition: str
    origin: str
    """The instant a latency counts from, or what a share or count is taken over."""
    better: Literal["lower", "higher"] | None
    """Direction of improvement; None where neither is better by itself."""
    heading: str = ""
    """The name in tables, before its statistic; empty: the words of its own."""
    shown: str | None = None
    """The unit in tables: `ms` or `s`, `%`, another word or none; `runs`: k of n runs have it. None: as others of its
    unit."""
    digits: int | None = None
    """Decimals in tables; None: as others of its unit."""
    share: bool = False
    """A share, which targets have in %."""
    spoken: bool = False
    """Only runs with spoken replies have it."""
    statistic: str = ""
    """The statistic of a quantity with values of its own, so that it has any percentile; else empty."""

    @property
    def column(self) -> tuple[str, int, int]:
        """Return the unit in tables, the factor to it, and the decimals."""
        unit, digits = ("%", 1) if self.share else _SHOWN.get(self.unit, (self.unit, 0))
        unit = unit if self.shown is None else self.shown
        factor = 1000 if unit == "ms" else 100 if unit.startswith("%") else 1
        return unit, factor, digits if self.digits is None else self.digits

    def of(self, statistic: str) -> Definition:
        """Return the definition of a statistic: of this quantity, or of that which this is a statistic of."""
        quantity = self.definition.removeprefix(f"{word_for(self.statistic)} " if self.statistic else "")
        return replace(self, definition=f"{word_for(statistic)} {quantity}", statistic=statistic)


share_of = partial(Definition, "1", share=True)


def statistics(which: Iterable[str], quantities: Mapping[str, Definition]) -> dict[str, Definition]:
    """Return the definitions of these statistics of each quantity, by name. The text of a quantity's goes on after
    `P50 `."""
    return {str(MetricName(name, each)): meaning.of(each) for name, meaning in quantities.items() for each in which}


OWN_DEFINITIONS: dict[str, Definition] = {}
"""Definitions of metrics that only one kind of workload has: ours in `vocabulary`, those of other packages as kinds are
discovered (`harness.kinds`)."""
HEADLINES: dict[str, tuple[str, ...]] = {
    "duplex": (
        "end_of_turn_delay_p50", "end_of_turn_delay_p95", "takeover", "cut_in", "false_interruption",
        "interruption_recall", "stop_p50", "stop_p95", "respond_p50", "talk_over_share",
    )
}  # fmt: skip
"""Kind of workload with metrics of its own -> metrics that its tables show; filled as `OWN_DEFINITIONS` is."""

TURN_END = "from the scheduled end of the user's turn (not the send), at the client"
TTFT = Definition(
    "s", "time to the first text token; a turn that failed counts as infinitely late", TURN_END, "lower",
    heading="TTFT", digits=0,
)  # fmt: skip
TBT = Definition(
    "s",
    "a turn's mean time between text tokens, whose number a live server may state; missing when all its "
    "text came in one message",
    "from text token to text token, at the client",
    "lower",
    heading="TBT",
)
MAKESPAN = Definition("s", "length of the run including its drain", "from the first start of a turn", None, shown="s")
PREEMPTIONS = Definition("1", "times a stage preempted a request", "over started turns", "lower")
