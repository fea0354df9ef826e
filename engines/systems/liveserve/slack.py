"""Whether a stage can afford to let a reply wait: the time in which it would make up for what it leaves undone.

A reply that waits lives on its lead, and a lead comes back only out of what the stage makes beyond what is being heard.
With all n listeners in a step of S seconds that makes a seconds of audio for each, the stage makes n a / S seconds of
audio a second, and n of them are heard. What lacks until everybody has a lead of L is D, the sum of L - P_i over those
below L. So it takes D / (n a / S - n) seconds, if all run, until nobody lacks anything. As the utilisation S / a comes
near 1 that grows without bound, and where no more is made than heard nothing that was left undone is ever made up.
"""

import math
from collections.abc import Callable, Sequence

from engines.core.step_cost import StepWork
from engines.speaking.reply import SpeechView


def refill_s(
    stage: str,
    listeners: Sequence[tuple[SpeechView, float]],
    lead_s: float,
    step_s: Callable[[StepWork], float | None],
) -> float:
    """Seconds until all of `listeners`, requests with their buffers (s), could have a lead of `lead_s`; inf: never.

    0 where nobody lacks anything, or while the stage has yet to measure its steps.
    """
    lacking_s = sum([max(0.0, lead_s - buffer) for _, buffer in listeners])
    # Of a prompt one token counts: it comes once.
    step = step_s(StepWork.of([(1, request.computed) for request, _ in listeners]))
    if not lacking_s or step is None:
        return 0.0
    made_s = sum([request.audio_s_of_step(stage) for request, _ in listeners])
    heard_s = step * len({id(request.session) for request, _ in listeners})
    return lacking_s * step / (made_s - heard_s) if made_s > heard_s else math.inf
