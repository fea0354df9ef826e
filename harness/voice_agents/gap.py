"""The gap between a user's last sound and a voice agent's first, in parts that sum, each with who owns it.

Owners are Pipecat's (pipecat-ai 1.14, `LatencyOwnerKind`): a *service* that could be swapped, a *setting* that somebody
chose, the *bot*'s own code, or the *pipeline* between them. To a caller there is a fifth, the *way*: network and
playback outside the agent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Owner = Literal["service", "setting", "bot", "pipeline", "way"]
OWNERS: tuple[Owner, ...] = ("service", "setting", "bot", "pipeline", "way")
ROUNDING_S = 0.002
"""By which parts may miss their sum: logs print milliseconds. [config: pipecat's PRINTS_AS_ZERO_SECS, twice over]"""


@dataclass(frozen=True)
class Part:
    """`seconds` is below 0 for work that had begun before the turn was over, which other parts count as well."""

    owner: Owner
    name: str
    seconds: float


@dataclass(frozen=True)
class Gap:
    """One turn's. Its parts sum to `total_s`."""

    total_s: float
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        """ValueError where they do not."""
        missing = self.total_s - sum(part.seconds for part in self.parts)
        if abs(missing) > ROUNDING_S * max(1, len(self.parts)):
            raise ValueError(
                f"its parts sum to {self.total_s - missing:.3f} s and not to {self.total_s:.3f} s"
            )


@dataclass(frozen=True)
class Row:
    """One part over all turns, s: a turn without it counts as 0 in the mean and not in the percentiles."""

    owner: Owner
    name: str
    n: int
    mean_s: float
    p50_s: float
    p90_s: float


def rows_of(gaps: Sequence[Gap]) -> list[Row]:
    """Parts by owner, in the order in which they first come; means sum to the mean gap."""
    found: dict[tuple[Owner, str], list[float]] = {}
    for gap in gaps:
        own: dict[tuple[Owner, str], float] = {}
        for part in gap.parts:
            own[part.owner, part.name] = own.get((part.owner, part.name), 0.0) + part.seconds
        for key, seconds in own.items():
            found.setdefault(key, []).append(seconds)
    rows = [_row(owner, name, values, len(gaps)) for (owner, name), values in found.items()]
    return sorted(rows, key=lambda row: OWNERS.index(row.owner))


def owners_of(rows: Sequence[Row]) -> Mapping[Owner, float]:
    """The mean of each owner's parts, s."""
    return {
        owner: sum(row.mean_s for row in rows if row.owner == owner)
        for owner in OWNERS
        if any(row.owner == owner for row in rows)
    }


def as_heard(gaps: Sequence[Gap], mean_s: float) -> list[Row]:
    """The rows, with what a caller's mean gap of `mean_s` has beyond them. ValueError where it is shorter."""
    rows = rows_of(gaps)
    outside_s = mean_s - float(np.mean([gap.total_s for gap in gaps]))
    if outside_s < -ROUNDING_S:
        raise ValueError(
            f"callers heard a gap of {mean_s:.3f} s, shorter by {-outside_s:.3f} s than the agent's own"
        )
    return [*rows, _row("way", "network and playback", [outside_s] * len(gaps), len(gaps))]


def _row(owner: Owner, name: str, values: Sequence[float], turns: int) -> Row:
    p50_s, p90_s = np.percentile(values, [50, 90])
    return Row(owner, name, len(values), sum(values) / turns, float(p50_s), float(p90_s))
