"""Executors, which run points: processes of this machine (`local`), the nodes of a Ray cluster (`ray`).

Whatever takes a point to another machine has a `LocalExecutor` run it there, so it is measured in one way only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.replays.worker.fork_server import PRELOAD
from workloads.errors import UserError

if TYPE_CHECKING:
    from harness.experiments.point import Point
    from harness.experiments.run_order import Order
    from harness.replays.worker.isolation import Work

WATCH_S = 0.5
"""[chosen] a person sees it move."""


@dataclass(eq=False)
class WorkerExecutor:
    """The base of executors that start workers; each does `work` within `timeout_s` seconds.

    Every executor has `run(points)`, which leaves each point's record in `points_dir` and yields an `Outcome` as each
    point ends, in any order. Closing that iterator stops the running points.

    `order`: of all points of the run; `run` may get a part of them, and every record keeps its point's place.
    `preload`: modules that a fork server imports; the tests leave vLLM out. `watch` is called every `WATCH_S` with the
    share done of the running points, 1 for a whole one.
    """

    points_dir: Path
    work: Work
    _: KW_ONLY
    timeout_s: float
    order: Order | None = None
    preload: Sequence[str] = (PRELOAD,)
    watch: Callable[[float], None] | None = None


def no_room(point: Point, points_dir: Path) -> UserError:
    """Return the sentence about a full disk, which ends a run."""
    return UserError(
        f"there is no room for the record of {point.label} in {points_dir}; make room and run the same command again: "
        "finished points stay."
    )
