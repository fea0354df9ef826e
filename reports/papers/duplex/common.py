"""What the cards of open microphones share."""

from __future__ import annotations

from rehearsal.reports.papers.prelude import *

CALLS: dict[str, Any] = {"sessions": 64, "rate": 32.0}
"""Everybody has come within two seconds; c of them are on line at once, and who waits takes the place of who ends."""
SEEDS = [0, 1, 2]


def experiment(
    name: str, engines: list[str], settings: Mapping[str, Any], grid: Mapping[str, list[Any]]
) -> Experiment:
    return Experiment(
        name=name,
        engines=engines,
        workload="duplex",
        set={**CALLS, **settings},
        grid=dict(grid),
        seeds=SEEDS,
        timeout_s=900,
    )


def spread(points: Iterable[Measured], quantity: Quantity) -> Spread:
    """A quantity over the seeds of points that differ in nothing else."""
    return across_seeds(over_points(quantity, points))
