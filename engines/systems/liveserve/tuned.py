"""The weights alpha and beta of eq. 1 as card `liveserve-tuning` found them, stage by stage."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from workloads.errors import validate
from workloads.files.yaml_file import read_yaml

SHIPPED = Path(__file__).with_name("tuned.yaml")
"""What LiveServe's parameters default to, beside all that led to it."""


class Weights(BaseModel):
    """alpha and beta of one stage; only their ratio orders requests."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    alpha: float = Field(ge=0)
    beta: float = Field(ge=0)


class Tuned(BaseModel):
    weights: dict[str, Weights]


@cache
def shipped() -> dict[str, Weights]:
    """The weights that ship with LiveServe, by stage."""
    return validate(Tuned, read_yaml(SHIPPED), str(SHIPPED)).weights
