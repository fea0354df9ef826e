"""Which metrics a table shows, and how a number is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.metrics.definitions import DEFINITIONS
from harness.metrics.stats import Spread

MISSING = "–"


@dataclass(frozen=True)
class Column:
    """One metric as a reader sees it; `factor` takes the metric's unit to the one shown."""

    metric: str
    heading: str
    unit: str
    factor: float
    digits: int

    def text(self, value: float | None, sign: str = "") -> str:
        """The number without its unit; `sign="+"` for differences."""
        if value is None:
            return MISSING
        return f"{self.rounded(value):{sign}.{self.digits}f}".replace("-", "−")

    def rounded(self, value: float) -> float:
        """The number as shown."""
        return round(value * self.factor, self.digits) + 0.0  # no "-0.0"

    def interval(self, low: float, high: float, sign: str = "") -> str:
        return f"{self.text(low, sign)} to {self.text(high, sign)}"

    def range(self, spread: Spread) -> str:
        """Lowest to highest over seeds; empty for fewer than two."""
        if spread.low is None or spread.high is None or spread.n < 2:
            return ""
        return self.interval(spread.low, spread.high)


def columns(spoken: bool) -> list[Column]:
    """The headline metrics; a run without spoken replies is judged by its first text token."""
    first, name = ("audio_ttfp", "TTFP") if spoken else ("ttft", "TTFT")
    shared = [
        Column("wasted_token_ratio", "wasted tokens", "%", 100, 1),
        Column("completed_rps", "completed", "1/s", 1, 3),
    ]
    return [
        Column(f"{first}_p50", f"{name} P50", "ms", 1000, 0),
        Column(f"{first}_p90", f"{name} P90", "ms", 1000, 0),
        *([Column("continuity", "continuity", "%", 100, 1)] if spoken else []),
        *shared,
        *([Column("effective_rps", "effective", "1/s", 1, 3)] if spoken else []),
    ]


def column_for(quantity: str, shown: Sequence[Column]) -> Column:
    """How to write any metric: as its column or another statistic's is, else as its unit asks.

    What is no metric is a time in s that a picture read off.
    """
    family, _, statistic = quantity.rpartition("_")
    for column in shown:
        if column.metric == quantity:
            return column
        if family and column.metric.rpartition("_")[0] == family:
            heading = f"{column.heading.split()[0]} {statistic.upper()}"
            return replace(column, metric=quantity, heading=heading)
    if quantity not in DEFINITIONS:
        return Column(quantity, quantity.replace("_", " "), "s", 1, 1)
    heading = (
        f"{family.upper()} {statistic.upper()}" if statistic[1:].isdigit() else quantity.replace("_", " ")
    )
    unit, factor, digits = {"s": ("ms", 1000, 1), "1/s": ("1/s", 1, 3), "1": ("", 1, 2)}.get(
        DEFINITIONS[quantity].unit, (DEFINITIONS[quantity].unit, 1, 0)
    )
    return Column(quantity, heading, unit, factor, digits)
