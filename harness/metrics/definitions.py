"""Definitions of metrics, with the common ones of several vocabularies.

A vocabulary is a table of names, units, meanings, origins and directions. It stands in one file with the functions that
measure it, a file for each kind of run: `turns`, `classes`, `jobs`, `turn_taking`, `frames`, `quality` and `live`.
`metric.metrics_of` is the one loop over all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
    "s", "time to the first text token; a turn that failed counts as infinitely late", TURN_END, "lower"
)
TBT = Definition(
    "s",
    "a turn's mean time between text tokens, whose number a live server may state; missing when all its "
    "text came in one message",
    "from text token to text token, at the client",
    "lower",
)
MAKESPAN = Definition(
    "s",
    "length of the run including its drain; at a live endpoint up to the end of the steady window",
    "from the first start of a turn that counts",
    None,
)
PREEMPTIONS = Definition("1", "times a stage preempted a request", "over started turns", "lower")
