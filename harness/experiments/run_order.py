"""The order in which points are run: as their experiment has it, or shuffled with a seed that every record keeps.

What drifts while a matrix is measured (heat, other work on the machine) falls on whichever points are run last; in a
shuffled order it falls on all alike (Metronome, Appendix C).
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from harness.experiments.point import Point
from workloads.seeds import stream


@dataclass(frozen=True)
class Outcome:
    """The end of a point: `folder` is its record; `reason` says why it failed, else it is empty."""

    point: Point
    status: Literal["ok", "failed"]
    folder: Path
    wall_s: float
    reason: str = ""


@dataclass(frozen=True)
class Order:
    """The points in the order of their run. `seed`: of the shuffle; None: not shuffled.

    The same points and seed give the same order, so a stopped run resumes at its place in it.
    """

    points: tuple[Point, ...]
    seed: int | None = None

    @cached_property
    def _places(self) -> dict[str, int]:
        return {point.id: place for place, point in enumerate(self.points, 1)}

    def facts(self, point: Point) -> dict[str, Any]:
        """Return the facts that the manifest of `point` states at its start: its place from 1, the seed, the machine's
        load average."""
        return {"order": self._places[point.id], "order_seed": self.seed, "load_average": load_average()}


def load_average() -> list[float]:
    """Return the load of this machine over one, five and fifteen minutes."""
    return [round(minutes, 2) for minutes in os.getloadavg()]


def shuffled(points: Sequence[Point], seed: int | None) -> Order:
    """Return the points in the order that `seed` gives; None: as they are."""
    if seed is None:
        return Order(tuple(points))
    return Order(tuple(points[i] for i in stream(seed, "run order").permutation(len(points))), seed)
