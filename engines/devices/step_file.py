"""A file for `--profile`: steps measured on this machine, kernels measured elsewhere, or factors fitted to runs."""

from pathlib import Path
from typing import Any

from engines.devices import calibrated
from engines.devices.calibrated import Calibrated
from engines.devices.kernels import grids
from engines.devices.kernels.grids import Kernels, as_kernels
from engines.devices.profile import FIX, Profile, as_profile
from workloads.errors import UserError, validate
from workloads.files.yaml_file import read_yaml

StepFile = Profile | Kernels | Calibrated


def as_step_file(facts: dict[str, Any], where: str) -> StepFile:
    """Return the content of a file. UserError about the first wrong field; `where` opens the sentence."""
    if calibrated.MARK in facts:
        return _as_calibrated(facts, where)
    return as_kernels(facts, where) if grids.MARK in facts else as_profile(facts, where)


def _as_calibrated(facts: dict[str, Any], where: str) -> Calibrated:
    version = facts.get("schema_version", calibrated.SCHEMA_VERSION)
    if isinstance(version, int) and version > calibrated.SCHEMA_VERSION:
        raise UserError(
            f"{where} has schema_version {version}, newer than this version's {calibrated.SCHEMA_VERSION}; update "
            "Rehearsal or make the profile again."
        )
    return validate(Calibrated, facts, where)


def load_step_file(path: str | Path) -> StepFile:
    """Read a file. UserError when it cannot be read, is of no such kind, or is newer than this version."""
    facts = read_yaml(path, FIX)
    if not isinstance(facts, dict) or not facts.keys() & {"stages", grids.MARK, calibrated.MARK}:
        raise UserError(f"{path} is not a profile; make one with `rehearse profile`.")
    return as_step_file(facts, str(path))
