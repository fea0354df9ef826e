"""The text of `--set NAME=VALUE`, and what it changes of an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from harness.experiments.experiment import CHOICES, Experiment
from harness.experiments.grid import Schema, check_names, parameters
from workloads.devices import REAL_DEVICES
from workloads.errors import UserError, validate
from workloads.files.yaml_file import parse_yaml

Settings = Mapping[str, object] | Sequence[str]
"""Settings by name, each such text as `--set` takes, a value, or a list of values; or whole texts, `NAME=VALUE`."""


def apply(
    experiment: Experiment,
    settings: Settings,
    schema: Schema,
    seeds: int | None = None,
    *,
    device: str | None = None,
    quick: Mapping[str, object] | None = None,
    real: Mapping[str, object] | None = None,
) -> Experiment:
    """Return the experiment with the user's settings.

    `quick`, `real`: a card's own settings of its small version, and of devices that execute a model. They are applied
    first, so that settings unknown to another workload are dropped with it, and use one seed.
    """
    asked = dict(settings) if isinstance(settings, Mapping) else read_settings(settings)
    if device is not None:
        asked["device"] = device
    card_settings = real if real is not None and asked.get("device") in REAL_DEVICES else quick
    if card_settings is not None:
        experiment, seeds = override(experiment, card_settings, schema), seeds or 1
    return override(experiment, asked, schema, seeds)


def override(
    experiment: Experiment, settings: Mapping[str, object], schema: Schema, seeds: int | None = None
) -> Experiment:
    """Apply `--set name=value[,value...]` and `--seeds N`. A setting is such text, a value, or a list of values.

    `engine`, `workload` and `device` are names too. Several values make a grid axis, one value pins it. A
    setting of the experiment that only a replaced workload or engine understood is dropped; one from
    `settings` never is. Other engines or another workload get a title that names them.
    """
    check_names(experiment, schema.engines)
    values = {name: _values(name, given) for name, given in settings.items()}
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
    check_names(replaced, schema.engines)
    if (replaced.workload, set(replaced.engines)) != (experiment.workload, set(experiment.engines)):
        # The given title says what was compared, which is wrong for other engines or another workload.
        replaced.title = f"{', '.join(replaced.engines)} on workload {replaced.workload}"
    stale = _understood(experiment, schema) - _understood(replaced, schema)
    fixed = {name: value for name, value in experiment.set.items() if name not in stale}
    grid = {name: axis for name, axis in experiment.grid.items() if name not in stale}
    along = {name: axis for name, axis in experiment.along.items() if name not in stale and name not in values}
    first = next(iter(experiment.grid), "")
    if along and (first in stale or first in values):  # each of its new values goes with what the old ones had
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


def read_settings(texts: Sequence[str]) -> dict[str, str]:
    """Parse ["c=4,8"] as {"c": "4,8"}. UserError for anything that is not NAME=VALUE, or a name given twice."""
    settings: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise UserError(f"--set {text} is not NAME=VALUE; write for example --set c=16.")
        if name in settings:
            raise UserError(f"--set {name} is given twice; write --set {name}={settings[name]},{value} for both.")
        settings[name] = value
    return settings


def parse_setting(name: str, text: str) -> list[Any]:
    """Return the values in the text of `--set name=text`: `4,8` is [4, 8], each a YAML scalar.

    A value that contains a comma is put in quotes or brackets, as in YAML. UserError for text without a value.
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


def _values(name: str, given: object) -> list[Any]:
    if isinstance(given, str):
        return parse_setting(name, given)
    values = list(given) if isinstance(given, (list, tuple, range)) else [given]
    if not values:
        raise UserError(f"{name}: a list without a value; give a value or leave {name} out.")
    return values


def _understood(experiment: Experiment, schema: Schema) -> set[str]:
    """Return the settings that the experiment's engines understand. Other settings may be meant for other engines."""
    try:
        return set(parameters(experiment, schema))
    except UserError:
        return set(parameters(experiment.model_copy(update={"set": {}, "grid": {}}), schema))
