"""A profile: step times that were measured on one machine and fitted, stage by stage, as a file for virtual time.

`rehearse profile` writes it. All times are in seconds (fields end in `_s`); coefficients are seconds per unit of their
term (`engines.devices.step_time`); errors and drifts are shares, 0.03 for 3 %.
"""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from engines.devices.step_time import FORMS, StepTime, term
from workloads.atomic_file import output
from workloads.errors import UserError, validate
from workloads.files.yaml_file import read_yaml, shipped_yaml

SCHEMA_VERSION = 1
"""Version of each file of step times; a reader refuses one that is newer than itself."""

FIX = "give a file of `rehearse profile`"

HEADER = """\
# Made by `rehearse profile`. Times in s, coefficients in s per unit of their term, errors and spreads as shares.
"""


class FilePart(BaseModel):
    """A part of a file of step times, or of a report that compares them."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Error(FilePart):
    """Relative errors, |predicted / measured - 1|, of steps that the fit had not seen."""

    median: float = Field(ge=0)
    p90: float = Field(ge=0)


class FittedForm(FilePart):
    """One form of the step-time model. `held_out`: against the medians of grid cells that the fit had not seen;
    `held_out_samples`: against their single steps, which carry the machine's noise as well."""

    coefficients: dict[str, float]
    held_out: Error
    held_out_samples: Error

    @field_validator("coefficients")
    @classmethod
    def _usable(cls, value: dict[str, float]) -> dict[str, float]:
        for name, seconds in value.items():
            term(name)
            if not seconds >= 0:
                raise ValueError(f"the coefficient {name} must not be negative")
        return value


class Drift(FilePart):
    """The drift of the machine's speed, including disturbed steps: a canary kernel between grid cells. Spread: P90 over
    P10 of ten spans of time, less one."""

    canary_median_s: float = Field(gt=0)
    canary_spread: float = Field(ge=0)
    step_spread: float = Field(ge=0, description="of measured over predicted steps")


class Reaction(FilePart):
    """Seconds from the flag of an interruption to the end of the step, and the time of one layer."""

    shape: str
    step_s: float
    layer_s: float
    median_s: float
    p90_s: float
    interrupted: int
    ran_out: int = Field(description="asked too late: the last layer had begun")


class StageProfile(FilePart):
    """One stage: the form in use, both forms with their errors, and the steps that they were fitted to."""

    form: str
    forms: dict[str, FittedForm]
    samples: int = Field(gt=0, description="steps that were fitted")
    cells: int = Field(gt=0, description="different steps among them")
    max_tokens: int = Field(gt=0, description="tokens of the largest step measured")
    max_visible: int = Field(gt=0, description="visible tokens, summed over requests, of the largest step measured")
    left_out: float = Field(ge=0, le=1, description="share of all steps that others on the machine disturbed")
    residual_cv: float = Field(ge=0, description="standard deviation of log(measured / predicted) of a single step")
    drift: Drift
    reaction: list[Reaction] = Field(default=[])

    @model_validator(mode="after")
    def _form_is_there(self) -> StageProfile:
        if self.form not in self.forms or not self.forms.keys() <= FORMS.keys():
            raise ValueError(f"the form {self.form!r} is not among the fitted ones; forms are {', '.join(FORMS)}")
        return self

    @property
    def fitted(self) -> FittedForm:
        return self.forms[self.form]

    @property
    def step_time(self) -> StepTime:
        return StepTime(self.fitted.coefficients)


class Profile(FilePart):
    """The profile that `--device virtual --profile FILE` replays with."""

    schema_version: int = SCHEMA_VERSION
    model: str = Field(description="model, or the folder name of the checkpoint, that was measured")
    device: str = Field(description="device family it ran on: cpu or cuda")
    date: str = Field(description="when the measurement ended, UTC")
    machine: dict[str, Any]
    packages: dict[str, str]
    duration_s: float = Field(gt=0)
    stages: dict[str, StageProfile] = Field(min_length=1)

    @field_validator("date")
    @classmethod
    def _is_a_date(cls, value: str) -> str:
        return datetime.fromisoformat(value).astimezone(UTC).isoformat(timespec="seconds")

    @property
    def origin(self) -> str:
        """Return the origin for people, such as `llama_tiny on cpu (AMD EPYC, 2 cores), 2026-01-31`."""
        machine = f"{self.machine.get('accelerator') or self.machine.get('cpu')}, {self.machine.get('cores')} cores"
        return f"{self.model} on {self.device} ({machine}), {self.date[:10]}"


def save_profile(profile: Profile, path: Path) -> None:
    """Write `profile` as YAML, whole or not at all. UserError when the folder cannot be written."""
    save_facts(profile.model_dump(mode="json"), path, HEADER, 100)


def save_facts(facts: Any, path: Path, header: str, width: int = 118, dumper: Any = yaml.SafeDumper) -> None:
    """Write facts as YAML behind a header, whole or not at all. UserError when the folder cannot be written."""
    text = header + yaml.dump(facts, Dumper=dumper, sort_keys=False, width=width)
    with output(path, make_folder=True) as file:
        file.write(text.encode())


def check_version(facts: dict[str, Any], where: str, again: str = "make") -> None:
    """Raise UserError for a file that is newer than this version. `where` opens the sentence."""
    version = facts.get("schema_version", SCHEMA_VERSION)
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise UserError(
            f"{where} has schema_version {version}, newer than this version's {SCHEMA_VERSION}; update Rehearsal or "
            f"{again} the profile again."
        )


def load_profile(path: str | Path, model: str | None = None, device: str | None = None) -> Profile:
    """Read a profile and check that it is of `model` and `device` if these are given.

    UserError when it cannot be read, is not a profile, is newer than this version or was made for something else.
    """
    facts = read_yaml(path, FIX)
    if not isinstance(facts, dict) or "stages" not in facts:
        raise UserError(f"{path} is not a profile; make one with `rehearse profile`.")
    return check_profile(as_profile(facts, str(path)), model, device, str(path))


def as_profile(facts: dict[str, Any], where: str) -> Profile:
    """Return the profile in `facts`; UserError about the first wrong field. `where` opens the sentence."""
    check_version(facts, where, "measure")
    return validate(Profile, facts, where)


def check_profile(
    profile: Profile, model: str | None, device: str | None, where: str, target: str | None = None
) -> Profile:
    """Return `profile` if it is of `model` and `device`, if these are given; UserError otherwise.

    `target`: the model's name for `rehearse profile --model`; by default its own.
    """
    if model is not None and profile.model != model:
        raise UserError(
            f"{where} was measured with model {profile.model!r}, but this is model {model!r}; "
            f"measure one with `rehearse profile --device {device or profile.device} --model {target or model}`."
        )
    if device is not None and profile.device != device:
        raise UserError(
            f"{where} was measured on device {profile.device!r}, but this is for device {device!r}; "
            f"measure one with `rehearse profile --device {device} --model {profile.model}`."
        )
    return profile


def shipped_profile(deployment: str) -> Profile | None:
    """Return the profile that comes with a deployment, `engines/devices/profiles/<deployment>.yaml`; None without
    one."""
    source = files("engines.devices") / "profiles" / f"{deployment}.yaml"
    if not source.is_file():
        return None
    return as_profile(shipped_yaml(source), f"the profile shipped with {deployment}")
