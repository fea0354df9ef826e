"""The common parts of the cards of open microphones."""

from reports.papers.prelude import *

CALLERS: dict[str, Any] = {"sessions": 64, "rate": 32.0}
"""Everybody has come within two seconds; c of them are on line at once, and who waits takes the place of who ends."""
SEEDS = [0, 1, 2]


def experiment(
    name: str, engines: list[str], settings: Mapping[str, Any], grid: Mapping[str, list[Any]]
) -> Experiment:
    return Experiment(
        name=name,
        engines=engines,
        workload="duplex",
        set={**CALLERS, **settings},
        grid=dict(grid),
        seeds=SEEDS,
        timeout_s=900,
    )
