"""Experiments of cards."""

from collections.abc import Iterable, Mapping
from typing import Any

from harness.experiments.experiment import Experiment
from workloads.errors import validate


def experiment(
    name: str,
    engines: Iterable[str],
    workload: str,
    settings: Mapping[str, Any],
    seeds: Iterable[int] = range(3),
    timeout_s: float = 900,
    device: str = "virtual",
    **axes: Any,
) -> Experiment:
    """Return an experiment of these engines with these settings; `axes`: varied parameters, instead of settings of
    these names. UserError about a field that an experiment cannot have."""
    fields = {
        "name": name,
        "engines": list(engines),
        "workload": workload,
        "device": device,
        "set": {key: settings[key] for key in settings if key not in axes},
        "grid": {key: list(axis) for key, axis in axes.items()},
        "seeds": list(seeds),
        "timeout_s": timeout_s,
    }
    return validate(Experiment, fields, f"experiment {name!r}")
