"""Whether a stage can afford to let a reply wait: what it makes of audio beside what is heard meanwhile.

A reply that waits lives on its lead, and a lead comes back only out of what the stage makes beyond what is being heard.
With all n listeners in a step of S seconds that makes a seconds of audio for each, the stage makes n a / S seconds of
audio a second, and n of them are heard. What lacks until everybody has a lead of L is D, the sum of L - P_i over those
below L. So it takes D / (n a / S - n) seconds, if all run, until nobody lacks anything. As the utilisation S / a comes
near 1 that grows without bound, and where no more is made than heard nothing that was left undone is ever made up: then
leads last for their sum over n - n a / S seconds.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engines.core.step_cost import StepWork
from engines.speaking.reply import SpeechView

Listeners = Sequence[tuple[SpeechView, float]]
"""Requests with their buffers, s."""

DEVIATIONS = 2.0
"""[chosen] standard deviations of the number of listeners that a stage is ready for: users who come by themselves are
present in a number that is Poisson's, of which one in forty is larger by more."""


@dataclass(frozen=True, slots=True)
class Slack:
    """A stage with all of `listeners` in its steps, and `more` like them who have heard nothing yet.

    `made`, `heard`: s of audio a second.
    """

    listeners: Listeners
    more: float
    made: float
    heard: float

    def refill_s(self, lead_s: float) -> float:
        """Seconds until everybody could have a lead of `lead_s`; inf: never."""
        lacking_s = sum([max(0.0, lead_s - buffer) for _, buffer in self.listeners]) + self.more * lead_s
        if not lacking_s:
            return 0.0
        return lacking_s / (self.made - self.heard) if self.made > self.heard else math.inf

    def drain_s(self, lead_s: float) -> float:
        """Seconds for which leads make up for what is not made, to a rest of `lead_s` each; inf: for ever."""
        beyond_s = sum([max(0.0, buffer - lead_s) for _, buffer in self.listeners])
        return beyond_s / (self.heard - self.made) if self.heard > self.made else math.inf


UNLIMITED = Slack((), 0.0, 0.0, 0.0)


def listening(listeners: Listeners) -> int:
    """Sessions; several of a session's requests may be under way."""
    return len({id(request.session) for request, _ in listeners})


def slack(
    stage: str, listeners: Listeners, step_s: Callable[[StepWork], float | None], more: float = 0.0
) -> Slack:
    """That of the stage; unlimited while it has yet to measure its steps, or where they take no time."""
    if not listeners:
        return UNLIMITED
    sessions = listening(listeners)
    # Of a prompt one token counts: it comes once.
    requests, prompt, context = StepWork.of([(1, request.computed) for request, _ in listeners])
    grown = 1 + more / sessions
    step = step_s(StepWork(grown * requests, prompt, grown * context))  # type: ignore[arg-type]
    if not step:
        return UNLIMITED
    made_s = grown * sum([request.audio_s_of_step(stage) for request, _ in listeners])
    return Slack(listeners, more, made_s / step, grown * sessions)


class Growth:
    """How many more listen in `horizon_s` from now, if their number goes on as it has in the last `horizon_s`."""

    def __init__(self, horizon_s: float) -> None:
        self._horizon_s = horizon_s
        self._mean, self._seen_s = 0.0, -math.inf

    def more(self, sessions: int, now: float) -> float:
        """By how many they exceed their mean over the time that has passed, weighted exponentially; not below 0."""
        past = math.exp((self._seen_s - now) / self._horizon_s)
        self._mean, self._seen_s = past * self._mean + (1 - past) * sessions, now
        return max(0.0, sessions - self._mean)


def spread(sessions: int) -> float:
    """By how many more a constant load can differ from itself: users who come by themselves are present in a number
    that is Poisson's."""
    return DEVIATIONS * math.sqrt(sessions)
