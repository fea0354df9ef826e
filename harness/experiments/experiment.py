"""An experiment as its author writes it: a grid of settings on one workload and device, and seeds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, field_validator, model_validator

from workloads.bounds import MOST_SEED
from workloads.errors import CONTROL, UserError, validate
from workloads.files.yaml_file import read_yaml

V = TypeVar("V")

SCHEMA_VERSION = 2
"""Version of points and records; a reader refuses a record of another one."""

MOST_SEEDS = 10_000
"""[chosen] The most seeds of one experiment. Each seed is a point of its own."""

MOST_VALUES = 10_000
"""[chosen] The most values of one parameter in a grid."""

MOST_NAMES = 1000
"""[chosen] The most engines or parameters of one experiment."""

ENDPOINT = "endpoint"
"""The engine of live runs: whatever stands behind a url."""

CHOICES = ("engine", "workload", "device")
"""Names that `--set` takes besides parameters."""


def _as_json(value: object) -> object:
    """Return a path or a number of NumPy as YAML would have it. NumPy is not imported here, which takes long."""
    to_python = getattr(value, "item", None)
    return str(value) if isinstance(value, Path) else to_python() if callable(to_python) else value


Value = Annotated[JsonValue, BeforeValidator(_as_json)]
"""A parameter's value, before its model has read it."""

Axis = Annotated[list[Value], Field(max_length=MOST_VALUES)]
"""Values of one parameter."""


def _key(value: object) -> Hashable:
    """Return what equal values share: 4 and 4.0 are equal."""
    return value if isinstance(value, Hashable) else ("", json.dumps(value, sort_keys=True))


class Experiment(BaseModel):
    """An experiment: engines × grid × seeds on one workload and device. A YAML file or a card holds one."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9_.-]*$", max_length=100, description="short name; the results directory's default"
    )
    title: str = Field(default="", max_length=500, description="one line for people")
    engines: list[str] = Field(
        min_length=1, max_length=MOST_NAMES, description="engine variants, see `rehearse list engines`"
    )
    workload: str = Field(description="workload, see `rehearse list workloads`")
    device: str = Field(default="virtual", description="device, see `rehearse list devices`")
    profile: str | None = Field(
        default=None,
        description="file of `rehearse profile` for the virtual device; default: the deployment's own, or a roofline",
    )
    set: dict[str, Value] = Field(
        default_factory=dict, max_length=MOST_NAMES, description="parameters that differ from their defaults"
    )
    grid: dict[str, Axis] = Field(
        default_factory=dict, max_length=MOST_NAMES, description="parameters to vary: name -> values"
    )
    along: dict[str, Axis] = Field(
        default_factory=dict,
        max_length=MOST_NAMES,
        description="parameters that change with the first of the grid: name -> a value for each of its values",
    )
    label: str = Field(default="", max_length=200, description="the build of the server that is called, for people")
    seeds: list[Annotated[int, Field(ge=0, le=MOST_SEED)]] = Field(
        default=[0], min_length=1, max_length=MOST_SEEDS, description="seeds; a single number N stands for 0 .. N-1"
    )
    timeout_s: float = Field(default=900, gt=0, le=1e7, description="wall-clock limit of one point, s")

    @field_validator("seeds", mode="before")
    @classmethod
    def _count(cls, value: Any) -> Any:
        if isinstance(value, int) and (isinstance(value, bool) or not 1 <= value <= MOST_SEEDS):
            raise ValueError(f"should be a number of seeds from 1 to {MOST_SEEDS}, or a list of seeds")
        return list(range(value)) if isinstance(value, int) else value

    @field_validator("engines", "seeds")
    @classmethod
    def _once(cls, value: list[Any]) -> list[Any]:
        for name, count in Counter(value).items():
            if count > 1:
                raise ValueError(f"names {name} twice; name it once")
        return value

    @field_validator("*", mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        """Refuse control characters: tables and pages show these texts, also to other people."""
        parts = value.values() if isinstance(value, dict) else [value]
        texts = [text for part in parts for text in (part if isinstance(part, list) else [part])]
        if odd := CONTROL.search("".join(text for text in texts if isinstance(text, str)).replace("\n", "")):
            raise ValueError(f"holds the control character {odd[0]!r}; leave it out")
        return value

    @model_validator(mode="after")
    def _axes(self) -> Experiment:
        for name, values in self.grid.items():
            if not values:
                raise ValueError(f"the grid of {name} has no values; give some, or leave {name} out")
            twice = next((value for value, count in Counter(map(_key, values)).items() if count > 1), None)
            if twice is not None:
                raise ValueError(f"the grid of {name} has {twice} twice; give it once")
            if name in self.set:
                raise ValueError(f"{name} stands in both set and grid; leave it out of one")
        for name, values in self.along.items():
            if name in self.set or name in self.grid:
                raise ValueError(f"{name} stands in along and in set or grid; leave it out of one")
            if len(values) != len(next(iter(self.grid.values()), [])):
                raise ValueError(f"along gives {name} {len(values)} values; give one for each value of the first axis")
        return self


def load_experiment(path: Path) -> Experiment:
    """Read an experiment from a YAML file, or from the JSON that a results directory keeps of it.

    UserError if it cannot be read or is not one.
    """
    data = read_yaml(path)
    if not isinstance(data, dict):
        raise UserError(f"{path} is not an experiment: it needs at least name, engines and workload.")
    if (version := data.pop("schema_version", None)) is not None:
        check_schema(version, path)
        data.pop("points", None)  # of `harness.records.results`
    return validate(Experiment, data, str(path))


def check_schema(version: Any, path: Path) -> None:
    """Raise UserError when `path` was written by another schema than this code's."""
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise UserError(f"{path} has schema version {version}, newer than {SCHEMA_VERSION}; upgrade rehearsal.")
    if version in range(SCHEMA_VERSION):
        raise UserError(
            f"{path} was written by an earlier version (schema {version}, now {SCHEMA_VERSION}); read it with the "
            "release that wrote it, or measure its experiment again."
        )
