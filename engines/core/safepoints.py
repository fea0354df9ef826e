"""Where a step can be interrupted."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Safepoints:
    """Extends a stage (`Stage.extension`) whose steps can be interrupted in front of every `layers` layers, of every
    one without it. `seconds`: what each safepoint costs the step."""

    layers: int = 1
    seconds: float = 0.0
