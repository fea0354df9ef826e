"""A file that `--profile` takes: steps measured here and fitted, or kernels measured elsewhere."""

from pathlib import Path
from typing import Any

from engines.devices.kernels.grids import MARK, Kernels, as_kernels
from engines.devices.profile import MEND, Profile, as_profile
from workloads.errors import UserError
from workloads.files.yaml_file import read_yaml

StepFile = Profile | Kernels


def as_step_file(facts: dict[str, Any], where: str) -> StepFile:
    """UserError about the first wrong field; `where` opens the sentence."""
    return as_kernels(facts, where) if MARK in facts else as_profile(facts, where)


def load_step_file(path: str | Path) -> StepFile:
    """UserError when it cannot be read, is neither, or is newer than this version."""
    facts = read_yaml(path, MEND)
    if not isinstance(facts, dict) or not facts.keys() & {"stages", MARK}:
        raise UserError(f"{path} is not a profile; make one with `rehearse profile`.")
    return as_step_file(facts, str(path))
