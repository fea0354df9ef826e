"""Whether a stage makes as much audio as is heard: the measure of what may wait.

With n requests that gain a seconds of audio each in a step of S seconds, a stage makes n a / S seconds of audio a
second. Every listener hears one a second. The fewer requests share a step, the shorter it is and the less it makes, as
a step has a constant part; so a step that is kept short for somebody's sake costs the others audio.
"""

import math
from collections.abc import Callable, Iterable

from engines.core.step_cost import StepWork
from engines.speaking.reply import SpeechView


class Batch:
    """Requests that share steps of a stage, added one by one. Of a prompt one token counts: it comes once."""

    def __init__(
        self,
        stage: str,
        step_s: Callable[[StepWork], float | None],
        requests: Iterable[SpeechView] = (),
    ) -> None:
        self._stage = stage
        self._predict = step_s
        self._work = StepWork()
        self._audio_s = 0.0
        for request in requests:
            self.add(request)

    def add(self, request: SpeechView) -> None:
        self._work = self._work.plus(1, request.computed)
        self._audio_s += request.audio_s_of_step(self._stage)

    def step_s(self, more: SpeechView | None = None) -> float:
        """Seconds of a step of them, and of one more; 0 while the stage has yet to measure its steps."""
        work = self._work if more is None else self._work.plus(1, more.computed)
        return self._predict(work) or 0.0

    def made(self, more: SpeechView | None = None) -> float:
        """Seconds of audio a second of them, and of one more; inf where steps take no time."""
        audio_s = self._audio_s + (0.0 if more is None else more.audio_s_of_step(self._stage))
        step_s = self.step_s(more)
        return audio_s / step_s if step_s else math.inf
