"""The types of what a record's manifest and facts of the run state, which every reader relies on."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from harness.experiments.point import Point


class _Stated(BaseModel):
    """Fields that are missing were unknown to the version that wrote them; others than these are of no concern. A
    number in quotes is no number."""

    model_config = ConfigDict(strict=True)


class Sums(_Stated):
    """Size and SHA-256 of one file."""

    bytes: int
    sha256: str


class _Revision(_Stated):
    commit: str
    dirty: bool
    diff_sha256: str | None

    @model_validator(mode="after")
    def _names_its_changes(self) -> _Revision:
        if self.dirty == (self.diff_sha256 is None):
            raise ValueError("a changed checkout has the sum of its changes, and no other has")
        return self


class _Machine(_Stated):
    cpu: str
    cores: int
    memory_bytes: int
    os: str
    python: str


class _Eviction(_Stated):
    calls: int
    mean_ms: float | None
    p90_ms: float | None


class _Floor(_Stated):
    """Numbers by name."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, float | None]

    kind: str = ""


class _Cost(_Stated):
    wall_s: float
    simulated_s: float
    eviction: _Eviction = Field(default_factory=lambda: _Eviction(calls=0, mean_ms=None, p90_ms=None))
    floor: _Floor | None = None


class Manifest(_Stated):
    """A manifest. `order`, `order_seed` and `load_average` are stated together, or none of them."""

    schema_version: int
    status: Literal["ok", "failed"]
    id: str = ""
    point: Point
    error: str = ""
    started: AwareDatetime
    finished: AwareDatetime
    files: dict[str, Sums]
    revision: _Revision | None
    packages: dict[str, str]
    machine: _Machine
    order: int = 0
    order_seed: int | None = None
    load_average: tuple[float, float, float] = (0.0, 0.0, 0.0)
    step_times: dict[str, str] = Field(default_factory=dict)
    cost: _Cost = Field(default_factory=lambda: _Cost(wall_s=0, simulated_s=0))

    @model_validator(mode="after")
    def _whole(self) -> Manifest:
        order = {"order", "order_seed", "load_average"} & self.model_fields_set
        if len(order) in (1, 2):
            raise ValueError("the order of the run is stated in part")
        if self.status == "failed" and "error" not in self.model_fields_set:
            raise ValueError("it has failed for no reason")
        if self.status == "ok" and "cost" not in self.model_fields_set:
            raise ValueError("it has no cost")
        return self


class Live(_Stated):
    """Facts of a live run, see `harness.records.measured.LiveFacts`."""

    late_s: float
    floor: _Floor
    lost_sessions: int = Field(ge=0)
    speaks: bool


class Run(_Stated):
    """The facts of a run, see `harness.records.measured.RunFacts`."""

    end_s: float
    timing: dict[str, float | str | bool | None]
    counters: dict[str, float]
    live: Live | None
