"""A file for `--profile`: steps measured on this machine, kernels measured elsewhere, or factors fitted to runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date as Date
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from engines.devices.kernels import grids
from engines.devices.kernels.grids import Kernels, as_kernels
from engines.devices.profile import FIX, SCHEMA_VERSION, FilePart, Profile, as_profile, check_version, save_facts
from workloads.errors import UserError, validate
from workloads.files.yaml_file import read_yaml

CALIBRATED_MARK = "factors"
"""The field that distinguishes such a file from other profiles."""

CALIBRATED_HEADER = """\
# Made by `rehearse profile --from RUNS`. Times in s, errors as shares: mean |predicted / measured - 1| of loads' means.
"""


class Factor(FilePart):
    """One factor. `default`: its value in a replay without the profile. `fitted_to`: the measurements that decide
    it."""

    value: float = Field(ge=0, allow_inf_nan=False)
    default: float = Field(ge=0, allow_inf_nan=False)
    fitted_to: str


class Factors(FilePart):
    """`decode`, `prompt`: on the kernels of steps of decodes alone, and of steps with prompts. `host_s`,
    `host_s_per_request`: the host's time that shows in a step, and for each of its requests. `client_s`: outside of the
    engine, in TTFT and E2E alike. `client_s_per_reply`: more of it for each reply in progress; None: as the deployment
    says, in a file that is older."""

    decode: Factor
    prompt: Factor
    host_s: Factor
    host_s_per_request: Factor
    client_s: Factor
    client_s_per_reply: Factor | None = None

    @model_validator(mode="after")
    def _take_time(self) -> Factors:
        if not (self.decode.value and self.prompt.value):
            raise ValueError("has a factor of kernels that is 0; kernels take time")
        return self


class Errors(FilePart):
    """Mean over loads of |predicted / measured - 1| of the mean TTFT, time between tokens and E2E; None if no load
    measured it."""

    ttft: float | None = Field(ge=0, allow_inf_nan=False)
    itl: float | None = Field(ge=0, allow_inf_nan=False)
    e2e: float | None = Field(ge=0, allow_inf_nan=False)


class Compared(FilePart):
    """Loads with the errors before and after the fit."""

    loads: list[str] = Field(min_length=1)
    before: Errors
    after: Errors


class Range(FilePart):
    """The range of the loads, fitted and held out: requests a second, and requests in flight by Little's law."""

    lowest_rate: float = Field(gt=0, allow_inf_nan=False)
    highest_rate: float = Field(gt=0, allow_inf_nan=False)
    lowest_in_flight: float = Field(ge=0, allow_inf_nan=False)
    highest_in_flight: float = Field(ge=0, allow_inf_nan=False)


class Calibrated(FilePart):
    """A file, which `rehearse profile --from RUNS` writes: one server's factors. `gpus`: of a replica. `server`: names
    of the runs, and the release of vLLM. Times are in seconds, errors are shares, 0.03 for 3 %."""

    schema_version: int = SCHEMA_VERSION
    model: str
    gpu: str
    gpus: int = Field(gt=0)
    date: Date
    server: str
    range: Range
    factors: Factors
    held_out: Compared
    fitted: Compared

    @property
    def origin(self) -> str:
        count = len(self.fitted.loads)
        return f"fitted to {count} load{'' if count == 1 else 's'} of {self.server} on {self.date}"

    def extrapolated(self, rate: float, replicas: int = 1) -> str:
        """Return a sentence if a replay's requests per second and replica are outside the loads', which one replica
        served; else nothing."""
        low, high = self.range.lowest_rate, self.range.highest_rate
        if low * (1 - MARGIN) <= rate / replicas <= high * (1 + MARGIN):
            return ""
        each = f" for each of {replicas} replicas" if replicas > 1 else ""
        asked = f"the replay has {rate / replicas:.3g} requests a second{each}"
        return f"Extrapolated: {asked}, and the loads had {low:.3g} to {high:.3g}."


MARGIN = 0.02
"""Margin by which a rate may lie outside the range and still count as within. [chosen] Rounding, and chance in
arrivals."""


def check_calibrated(profile: Calibrated, model: str, gpu: str, splits: Mapping[str, int], where: str) -> None:
    """Raise UserError for a profile of another model, GPU or number of GPUs. `splits`: GPUs of a replica, by stage."""
    fix = "give a profile of this server, made by `rehearse profile --from RUNS`"
    if profile.model != model:
        raise UserError(f"{where} is of model {profile.model!r}, but this is model {model!r}; {fix}.")
    if profile.gpu != gpu:
        raise UserError(f"{where} is of gpu {profile.gpu!r}, but this runs on gpu {gpu!r}; {fix}.")
    if list(splits.values()) != [profile.gpus]:
        runs = ", ".join(f"{stage} on {gpus}" for stage, gpus in splits.items())
        raise UserError(
            f"{where} is of one stage on {profile.gpus} GPU{'' if profile.gpus == 1 else 's'}, but this runs {runs}; "
            f"{fix}."
        )


def save_calibrated(profile: Calibrated, path: Path) -> None:
    """Write it as YAML, whole or not at all. UserError when the folder cannot be written."""
    save_facts(profile.model_dump(mode="json"), path, CALIBRATED_HEADER)


StepFile = Profile | Kernels | Calibrated


def as_step_file(facts: dict[str, Any], where: str) -> StepFile:
    """Return the content of a file. UserError about the first wrong field; `where` opens the sentence."""
    if CALIBRATED_MARK in facts:
        check_version(facts, where)
        return validate(Calibrated, facts, where)
    return as_kernels(facts, where) if grids.MARK in facts else as_profile(facts, where)


def load_step_file(path: str | Path) -> StepFile:
    """Read a file. UserError when it cannot be read, is of no such kind, or is newer than this version."""
    facts = read_yaml(path, FIX)
    if not isinstance(facts, dict) or not facts.keys() & {"stages", grids.MARK, CALIBRATED_MARK}:
        raise UserError(f"{path} is not a profile; make one with `rehearse profile`.")
    return as_step_file(facts, str(path))
