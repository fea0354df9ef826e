"""The sources of modelled step times, as a record states them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from engines.devices.extensions import StatedSteps
from engines.devices.kernels.choose import fitting
from engines.devices.kernels.grids import Kernels
from engines.devices.names import REAL_DEVICES
from engines.devices.step_file import Calibrated, StepFile
from engines.server import ResolvedServer

if TYPE_CHECKING:
    from harness.experiments.point import Point

FITTED = "a roofline of each operation, fitted to kernels measured on other GPUs or models"
ROOFLINE = "a roofline of the whole layer"
OWN = "as the deployment says"


def step_times(point: Point, starts_s: Collection[float] | None = None) -> dict[str, Any]:
    """Return `{"step_times": {stage: source of its times}}` of a point on a modelled device; else nothing. `starts_s`:
    begins of its requests, where known."""
    if point.device in REAL_DEVICES or point.resolved is None:
        return {}
    server, given = point.resolved.server, point.resolved.step_file
    if not isinstance(server, ResolvedServer):
        return {}
    found = step_sources(server, given)
    if isinstance(given, Calibrated) and starts_s is not None and len(starts_s) > 1:
        took_s = max(starts_s) - min(starts_s)
        said = given.extrapolated((len(starts_s) - 1) / took_s) if took_s else ""
        found = {stage: f"{source}. {said}" if said else source for stage, source in found.items()}
    return {"step_times": found}


def step_sources(server: ResolvedServer, given: StepFile | None = None) -> dict[str, str]:
    """Return the source of a modelled device's step times, in words, by stage. `given`: the file of step times, whoever
    named it."""
    deployment, unscaled = server.deployment, server.unscaled
    found = {}
    for name, stage in deployment.stages.items():
        kernels = None
        if given is not None and not isinstance(given, Calibrated):
            has = given.of(name, stage.split) if isinstance(given, Kernels) else given.stages.get(name)
            if has is not None:
                found[name] = f"{given.origin}, from a file"
                continue
        elif server.params.step_times == "measured" and not stage.roles:
            decoder = unscaled.stages[name].decoder
            kernels = fitting(unscaled.model.name, name, decoder, unscaled.gpu.name, stage.split)
        if stage.roles or stage.extension(StatedSteps) is not None:
            found[name] = OWN
        elif kernels is not None:
            found[name] = kernels[0].origin
        elif deployment.gpu.kernels is not None and not (deployment.in_turn or deployment.waves):
            found[name] = FITTED
        else:
            found[name] = ROOFLINE
        if isinstance(given, Calibrated):
            found[name] += f", {given.origin}"
    return found
