"""Where a run's points are measured, as a user names it, and the executor for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from workloads.errors import UserError, unknown

if TYPE_CHECKING:
    from harness.executors import Executor
    from harness.experiments.experiment import Point
    from harness.experiments.run_order import Order
    from harness.records.record import Work

LOCAL, AUTO = "local", "auto"
_RAY = re.compile(r"ray://[\w.\-\[\]:]+:\d{1,5}")


@dataclass(frozen=True)
class Place:
    """`name`: `local`, processes of this machine; `auto`, the Ray cluster that this machine belongs to; or
    `ray://HOST:PORT`, a Ray cluster elsewhere, by the address of its client server."""

    name: str = LOCAL

    def __post_init__(self) -> None:
        if self.name.startswith("ray:") and not _RAY.fullmatch(self.name):
            raise UserError(f"unknown executor {self.name!r}. Write ray://HOST:PORT.")
        if self.name not in (LOCAL, AUTO) and not self.name.startswith("ray:"):
            raise unknown("executor", self.name, (LOCAL, AUTO, "ray://HOST:PORT"))

    @property
    def local(self) -> bool:
        return self.name == LOCAL

    def check(self, points: Sequence[Point]) -> None:
        """UserError for points that are measured on this machine only."""
        other = next((point.device for point in points if point.device != "virtual"), None)
        if other is not None and not self.local:
            raise UserError(
                f"--executor {self.name} takes points of device virtual, whose results depend on no machine; device "
                f"{other} is measured where the command runs: leave --executor out."
            )
        release = next(
            (point.server_params["vllm"] for point in points if "vllm" in point.server_params), None
        )
        if release is not None and not self.local:
            raise UserError(
                f"vllm={release} is put beside the vLLM of this machine; leave --executor {self.name} or vllm out."
            )

    @contextmanager
    def opened(self) -> Iterator[None]:
        """What `executor` needs: a connection to the cluster. UserError when it cannot be had, or the library for it is
        missing."""
        if self.local:
            yield
        else:
            from harness.executors.ray import connected

            with connected(self.name):
                yield

    def executor(
        self,
        points_dir: Path,
        work: Work,
        *,
        jobs: int | None,
        timeout_s: float,
        order: Order,
        watch: Callable[[float], None] | None,
    ) -> Executor:
        """Makes the executor of other machines while the place is open."""
        from harness.executors.ray import RayExecutor

        return RayExecutor(points_dir, work, jobs=jobs, timeout_s=timeout_s, order=order, watch=watch)
