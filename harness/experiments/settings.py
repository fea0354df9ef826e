"""The text of `--set NAME=VALUE`, and what it changes of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import yaml
from yaml.constructor import ConstructorError

from harness.experiments.expand import check_names, parameters
from harness.experiments.experiment import CHOICES, Experiment
from workloads.errors import UserError, validate
from workloads.files.yaml_file import parse_yaml

V = TypeVar("V")

RENAMED = {"lazy_steps": "decode_fast_path"}
"""Settings of the version before -> their names now, which are read for one version more: from `--set`, an
experiment's file and a results directory that is run again."""


def override(experiment: Experiment, settings: Mapping[str, Any], seeds: int | None = None) -> Experiment:
    """Apply `--set name=value[,value...]` and `--seeds N`. A setting is such text, a value, or a list of values.

    `engine`, `workload` and `device` are names too. Several values make a grid axis, one value pins it. A
    setting of the experiment that only a replaced workload or engine understood is dropped; one from
    `settings` never is.
    """
    by_names = {group: renamed(getattr(experiment, group)) for group in ("set", "grid", "along")}
    experiment = experiment.model_copy(update=by_names)
    check_names(experiment)
    values = {name: _values(name, given) for name, given in renamed(settings).items()}
    changes: dict[str, Any] = {}
    if "engine" in values:
        changes["engines"] = [str(name) for name in values.pop("engine")]
    for choice in CHOICES[1:]:
        if choice in values:
            names = values.pop(choice)
            if len(names) != 1:
                raise UserError(f"{choice} takes one name, not {len(names)}; run once for each.")
            changes[choice] = str(names[0])
    replaced = experiment.model_copy(update=changes)
    check_names(replaced)
    stale = _understood(experiment) - _understood(replaced)
    fixed = {name: value for name, value in experiment.set.items() if name not in stale}
    grid = {name: axis for name, axis in experiment.grid.items() if name not in stale}
    along = {
        name: axis for name, axis in experiment.along.items() if name not in stale and name not in values
    }
    first = next(iter(experiment.grid), "")
    if along and (
        first in stale or first in values
    ):  # each of its new values goes with what the old ones had
        old, new = experiment.grid[first], values.get(first, experiment.grid[first][-1:])
        places = [old.index(value) if value in old else len(old) - 1 for value in new]
        along = {name: [axis[place] for place in places] for name, axis in along.items()}
        if len(new) == 1:
            fixed |= {name: axis[0] for name, axis in along.items()}
            along = {}
    for name, axis in values.items():
        if len(axis) == 1:
            grid.pop(name, None)
            fixed[name] = axis[0]
        else:
            fixed.pop(name, None)
            grid[name] = axis
    data = {
        **replaced.model_dump(),
        "set": fixed,
        "grid": grid,
        "along": along,
        **({} if seeds is None else {"seeds": seeds}),
    }
    return validate(Experiment, data, "--set and --seeds")


def renamed(settings: Mapping[str, V]) -> dict[str, V]:
    """The settings by their names of this version; UserError where one is given by both of its names."""
    for old, new in RENAMED.items():
        if old in settings and new in settings:
            raise UserError(f"{old} is the former name of {new}, and both are given; leave {old} out.")
    return {RENAMED.get(name, name): value for name, value in settings.items()}


def parse_setting(name: str, text: str) -> list[Any]:
    """The values in the text of `--set name=text`: `4,8` is [4, 8], each a YAML scalar.

    A value with a comma of its own is put in quotes or brackets, as in YAML. UserError for text without a
    value.
    """
    parts = [text] if text[:1] in "[{'\"" else text.split(",")
    if any(not part.strip() for part in parts):
        raise UserError(f"--set {name}={text} lacks a value; write {name}=VALUE or {name}=VALUE,VALUE.")
    try:
        return [parse_yaml(part) for part in parts]
    except ConstructorError as error:
        raise UserError(f"--set {name}={text}: {error.problem}.") from None
    except yaml.YAMLError:
        raise UserError(f"--set {name}={text} is not a plain value; put it in quotes.") from None


def _values(name: str, given: Any) -> list[Any]:
    if isinstance(given, str):
        return parse_setting(name, given)
    values = list(given) if isinstance(given, (list, tuple, range)) else [given]
    if not values:
        raise UserError(f"{name}: a list without a value; give a value or leave {name} out.")
    return values


def _understood(experiment: Experiment) -> set[str]:
    """Return the settings that the experiment's engines understand. Other settings may be meant for other engines."""
    try:
        return set(parameters(experiment))
    except UserError:
        return set(parameters(experiment.model_copy(update={"set": {}, "grid": {}})))
