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

Listeners = Sequence[tuple[SpeechView, float]]
"""Requests with their buffers, s."""


def refill_s(
    stage: str,
    listeners: Listeners,
    lead_s: float,
    step_s: Callable[[StepWork], float | None],
    more: float = 0.0,
) -> float:
    """Seconds until all of `listeners`, and `more` like them who have heard nothing yet, could have a lead of `lead_s`;
    inf: never; 0 where nobody lacks anything, or while the stage has yet to measure its steps."""
    if not listeners:
        return 0.0
    sessions = len({id(request.session) for request, _ in listeners})
    lacking_s = sum([max(0.0, lead_s - buffer) for _, buffer in listeners]) + more * lead_s
    # Of a prompt one token counts: it comes once.
    requests, prompt, context = StepWork.of([(1, request.computed) for request, _ in listeners])
    grown = 1 + more / sessions
    step = step_s(StepWork(grown * requests, prompt, grown * context))  # type: ignore[arg-type]
    if not lacking_s or step is None:
        return 0.0
    made_s = grown * sum([request.audio_s_of_step(stage) for request, _ in listeners])
    heard_s = grown * sessions * step
    return lacking_s * step / (made_s - heard_s) if made_s > heard_s else math.inf


class Growth:
    """How many more listen in `horizon_s` from now, if their number goes on as it has in the last `horizon_s`."""

    def __init__(self, horizon_s: float) -> None:
        self._horizon_s = horizon_s
        self._mean, self._seen_s = 0.0, -math.inf

    def more(self, listeners: Listeners, now: float) -> float:
        """By how many they exceed their mean over the time that has passed, weighted exponentially; not below 0."""
        sessions = len({id(request.session) for request, _ in listeners})
        past = math.exp((self._seen_s - now) / self._horizon_s)
        self._mean, self._seen_s = past * self._mean + (1 - past) * sessions, now
        return max(0.0, sessions - self._mean)
