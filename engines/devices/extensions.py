"""Extensions that tell the model of a device about a stage (`engines.core.stage.Stage.extension`)."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class InLockstep:
    """Extends a stage (`engines.core.stage.Stage.extension`) whose replicas step together, and divide the experts among
    them."""


@dataclass(frozen=True)
class VisionSlots:
    """Extends a stage (`engines.core.stage.Stage.extension`) whose vision encoder has only `layers` layers on the GPU
    at once, while the others wait in host memory."""

    layers: int


@dataclass(frozen=True)
class SmShare:
    """Extends a stage (`engines.core.stage.Stage.extension`) that has this `share` of its GPU's SMs, so that steps of
    several stages run there at once; without it they run one after the other."""

    share: float


@dataclass(frozen=True)
class StatedSteps:
    """Extends a stage (`engines.core.stage.Stage.extension`) whose step times these coefficients give, instead of a
    roofline, all of them times `scale`."""

    coefficients: Mapping[str, float]
    scale: float = 1.0
