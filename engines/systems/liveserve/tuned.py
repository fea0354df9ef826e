"""The weights alpha and beta of eq. 1 as `rehearse tune liveserve` found them, stage by stage."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from rehearsal.workloads.errors import validate
from rehearsal.workloads.yaml_file import read_yaml

SHIPPED = Path(__file__).with_name("tuned.yaml")
"""What LiveServe's parameters default to."""


class Weights(BaseModel):
    """alpha and beta of one stage; only their ratio orders requests."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    alpha: float = Field(ge=0)
    beta: float = Field(ge=0)


class Tried(BaseModel):
    """One pair that the sweep measured, medians over its seeds; None where nothing was measured."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    stage: str
    ratio: str = Field(description="alpha / beta, as 1/8 or inf")
    alpha: float
    beta: float
    wasted_token_ratio: float | None
    kv_stall_s: float | None = Field(
        description="s that requests waited for their first step at the stage, summed over a run"
    )
    cost: float | None = Field(description="wasted_token_ratio and kv_stall_s, each over its largest, summed")
    seeds: int = Field(description="seeds behind the medians")


class Tuned(BaseModel):
    """A result file: the weights, and all that led to them."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = 1
    engine: str
    weights: dict[str, Weights]
    objective: str
    workload: str
    settings: dict[str, bool | int | float | str | None]
    seeds: list[int]
    revision: str | None = Field(description="commit that was measured; None outside a checkout")
    changed: bool = Field(description="whether the checkout had changes on top of that commit")
    code_hash: str
    measured: list[Tried]


def read_tuned(path: Path) -> Tuned:
    """A result file; UserError when it cannot be read as one."""
    return validate(Tuned, read_yaml(path) or {}, str(path))


@cache
def shipped() -> dict[str, Weights]:
    """The weights that ship with LiveServe, by stage; a stage that was not tuned is missing."""
    return read_tuned(SHIPPED).weights if SHIPPED.exists() else {}
