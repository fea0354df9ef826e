"""The place of a run's points, as a user names it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workloads.errors import UserError, unknown

if TYPE_CHECKING:
    from harness.experiments.point import Point

LOCAL, AUTO = "local", "auto"
_RAY = re.compile(r"ray://[\w.\-\[\]:]+:\d{1,5}")


@dataclass(frozen=True)
class Place:
    """The place where points run. `name`: `local`, processes of this machine; `auto`, the Ray cluster that this machine
    belongs to; or `ray://HOST:PORT`, a Ray cluster elsewhere, by the address of its client server."""

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
        """Raise UserError for points that run on this machine only."""
        other = next((point.device for point in points if point.device != "virtual"), None)
        if other is not None and not self.local:
            raise UserError(
                f"--executor {self.name} is for device virtual, whose results do not depend on the machine; device "
                f"{other} is measured on this machine: leave --executor out."
            )
        release = next((point.server_params["vllm"] for point in points if "vllm" in point.server_params), None)
        if release is not None and not self.local:
            raise UserError(
                f"vllm={release} is added to the vLLM of this machine; leave --executor {self.name} or vllm out."
            )

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open the resources of the place for a run: a connection to the cluster. UserError when there is none, or its
        library is missing."""
        if self.local:
            yield
        else:
            from harness.replays.executors.ray import connected

            with connected(self.name):
                yield
