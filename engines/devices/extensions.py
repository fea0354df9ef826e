"""Extensions by which the model of a device learns about a stage (`engines.core.stage.Stage.extension`)."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class InLockstep:
    """Extends a stage (`engines.core.stage.Stage.extension`) whose replicas step together, and divide the experts among
    them."""


@dataclass(frozen=True)
class VisionSlots:
    """Extends a stage (`engines.core.stage.Stage.extension`) of whose vision encoder so many `layers` are on the GPU at
    once, while the others wait in host memory."""

    layers: int


@dataclass(frozen=True)
class SmShare:
    """Extends a stage (`engines.core.stage.Stage.extension`) that has this `share` of its GPU's SMs, so that steps of
    several stages run at once there; without it they run one after the other."""

    share: float


@dataclass(frozen=True)
class StatedSteps:
    """Extends a stage (`engines.core.stage.Stage.extension`) whose steps take what these coefficients say, in the place
    of a roofline, all of them times `scale`."""

    coefficients: Mapping[str, float]
    scale: float = 1.0
