"""Which measured kernels a stage's steps are timed by: those given, or those that come with Rehearsal; or none."""

from functools import cache
from importlib.resources import files

from engines.core.stage import Stage
from engines.devices.hardware import Gpu
from engines.devices.kernels.grids import Kernels, StageKernels, as_kernels
from engines.devices.kernels.steps import MeasuredSteps, WhatIf
from engines.devices.layer_slots import slots_of
from engines.devices.roofline import Roofline
from engines.models import Decoder
from workloads.files.yaml_file import shipped_yaml

PACKAGE = "engines.devices.kernels"


def shipped_models(gpu: str) -> list[str]:
    """Models of which there are kernels on such a GPU."""
    folder = files(PACKAGE) / gpu
    if not folder.is_dir():
        return []
    return sorted(path.name.removesuffix(".yaml") for path in folder.iterdir() if path.name.endswith(".yaml"))


@cache
def shipped(model: str, gpu: str) -> Kernels | None:
    """Kernels of a model on a GPU that come with Rehearsal; None where there are none."""
    path = files(PACKAGE) / gpu / f"{model}.yaml"
    if not path.is_file():
        return None
    return as_kernels(shipped_yaml(path), f"the kernels shipped of {model} on {gpu}")


def fitting(
    model: str, stage: str, decoder: Decoder, gpu: str, gpus: int
) -> tuple[Kernels, StageKernels] | None:
    """The shipped kernels of this very decoder: by its model's name, or else of any model that has one like it."""
    for name in dict.fromkeys([model, *shipped_models(gpu)]):
        kernels = shipped(name, gpu)
        for each in kernels.kernels if kernels is not None else ():
            if each.gpus == gpus and each.fits(decoder) and (name != model or each.stage == stage):
                return kernels, each  # type: ignore[return-value]
    return None


def steps_of(
    stage: Stage, gpu: Gpu, kernels: StageKernels | None, measured: tuple[Decoder, Gpu] | None = None
) -> MeasuredSteps | None:
    """The stage's step times from `kernels`; None without any. `measured`: decoder and GPU as they were measured, where
    the stage's own are scaled."""
    if kernels is None:
        return None
    what_if = None
    if measured is not None:
        what_if = WhatIf(Roofline(*measured, stage.split), Roofline(stage.decoder, gpu, stage.split))
    return MeasuredSteps(stage.decoder, gpu, kernels, what_if, slots_of(stage))
