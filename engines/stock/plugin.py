"""vLLM's hook for platform plug-ins. Every vLLM process in this environment calls it, so it imports next to nothing."""

import os
from importlib import metadata

SWITCH = "REHEARSAL_MODELLED_PLATFORM"
"""Environment variable that turns the modelled platform on; without it vLLM runs as if Rehearsal were not installed."""

EXECUTOR = "engines.stock.executor.ModelledExecutor"
"""The modelled device, as vLLM's `distributed_executor_backend` names it."""


def platform() -> str | None:
    """Return the class of the modelled platform if it is asked for, else None."""
    _know_torchvision()
    return "engines.stock.platform.ModelledPlatform" if _enabled() else None


def omni_platform() -> str | None:
    """Return vLLM-Omni's half of the modelled platform if that is asked for, else None (vLLM-Omni's hook)."""
    return "engines.stock.omni.platform.ModelledOmniPlatform" if _enabled() else None


def _enabled() -> bool:
    return os.environ.get(SWITCH, "0") not in ("", "0")


_operators: object = None


def _know_torchvision() -> None:
    """Declare the operators whose absence breaks `import torchvision` ("operator torchvision::nms does not exist"): its
    library of a CUDA build, which the package index has, does not load with a CPU build of torch. vLLM-Omni imports
    torchvision, and nothing here calls it."""
    global _operators
    try:
        builds = [metadata.version(package).endswith("+cpu") for package in ("torch", "torchvision")]
    except metadata.PackageNotFoundError:
        return
    if _operators is None and builds == [True, False]:
        from torch.library import Library

        _operators = library = Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
