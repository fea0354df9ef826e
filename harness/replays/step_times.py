"""The sources of modelled step times, as a record states them."""

from __future__ import annotations

from collections.abc import Collection

from engines.devices.extensions import StatedSteps
from engines.devices.kernels.choose import fitting
from engines.devices.kernels.grids import Kernels, StageKernels
from engines.devices.step_file import Calibrated, StepFile
from engines.server import ResolvedServer

FITTED = "a roofline of each operation, fitted to kernels measured on other GPUs or models"
ROOFLINE = "a roofline of the whole layer"
OWN = "as the deployment says"


def step_times(server: ResolvedServer, given: StepFile | None, starts_s: Collection[float] | None) -> dict[str, str]:
    """Return `step_sources`, and what a calibrated file says of a load beyond the measured ones. `starts_s`: begins of
    the requests, where known."""
    sources = step_sources(server, given)
    if isinstance(given, Calibrated) and starts_s is not None and len(starts_s) > 1:
        took_s = max(starts_s) - min(starts_s)
        (stage,) = server.deployment.stages.values()
        note = given.extrapolated((len(starts_s) - 1) / took_s, len(stage.gpus)) if took_s else ""
        return {stage: f"{source}. {note}" if note else source for stage, source in sources.items()}
    return sources


def step_sources(server: ResolvedServer, given: StepFile | None = None) -> dict[str, str]:
    """Return the source of a modelled device's step times, in words, by stage. `given`: the file of step times, whoever
    named it."""
    deployment, unscaled = server.deployment, server.unscaled
    sources = {}
    for name, stage in deployment.stages.items():
        kernels = None
        if given is not None and not isinstance(given, Calibrated):
            has = given.of(name, stage.split) if isinstance(given, Kernels) else given.stages.get(name)
            if has is not None:
                scaled = has.scaled_note if isinstance(has, StageKernels) else ""
                sources[name] = f"{given.origin}, from a file{scaled}"
                continue
        elif server.params.step_times == "measured" and not stage.roles:
            decoder = unscaled.stages[name].decoder
            kernels = fitting(unscaled.model.name, name, decoder, unscaled.gpu.name, stage.split)
        if stage.roles or stage.extension(StatedSteps) is not None:
            sources[name] = OWN
        elif kernels is not None:
            sources[name] = kernels[0].origin + kernels[1].scaled_note
        elif deployment.gpu.kernels is not None and not (deployment.in_turn or deployment.waves):
            sources[name] = FITTED
        else:
            sources[name] = ROOFLINE
        if isinstance(given, Calibrated):
            sources[name] += f", {given.origin}"
    return sources
