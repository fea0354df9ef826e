"""Where a run's points are measured, as a user names it, and the executor for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from workloads.errors import UserError, nearest

if TYPE_CHECKING:
    from harness.executors import Executor
    from harness.experiments.experiment import Point
    from harness.experiments.order import Order
    from harness.records.record import Work

LOCAL, AUTO, SLURM = "local", "auto", "slurm"
PLACES = {
    LOCAL: "processes of this machine",
    AUTO: "a Ray cluster that this machine belongs to",
    "ray://HOST:PORT": "a Ray cluster elsewhere, by the address of its client server",
    SLURM: "a job array of Slurm",
}
_RAY = re.compile(r"ray://[\w.\-\[\]:]+:\d{1,5}")


@dataclass(frozen=True)
class Place:
    """`name`: one of `PLACES`; `options`: of `sbatch`, by their long names, for Slurm alone."""

    name: str = LOCAL
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name not in (LOCAL, AUTO, SLURM) and not _RAY.fullmatch(self.name):
            hint = nearest(self.name, PLACES) if not self.name.startswith("ray:") else ""
            raise UserError(f"unknown executor {self.name!r}.{hint or ' Write ray://HOST:PORT.'}")
        if self.options and self.name != SLURM:
            first = next(iter(self.options))
            option = f"--{first}" if first == "partition" else f"--sbatch {first}"
            raise UserError(f"{option} is for Slurm; add --executor slurm, or leave it out.")

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
        """What `executor` needs: a connection to the cluster, or a look at it. UserError when it cannot be had, or the
        library for it is missing."""
        if self.local:
            yield
        elif self.name == SLURM:
            from harness.executors.slurm import check

            check(self.options)
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
        if self.name == SLURM:
            from harness.executors.slurm import SlurmExecutor

            return SlurmExecutor(
                points_dir,
                work,
                options=self.options,
                jobs=jobs,
                timeout_s=timeout_s,
                order=order,
                watch=watch,
            )
        from harness.executors.ray import RayExecutor

        return RayExecutor(points_dir, work, jobs=jobs, timeout_s=timeout_s, order=order, watch=watch)
