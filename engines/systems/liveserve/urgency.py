"""The urgency of a request: its playback buffer, its class U0, U1 or U2, and the rank within U2 (paper section 4.1).

Buffers are in seconds of audio at every stage, so that eq. 2 has no unit and P_safe compares between stages.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from engines.core.step_cost import StepWork
from engines.systems.liveserve.liveserve_params import OrderParams
from engines.turns.reply import SpeechView

U0, U1, U2, AHEAD = 0, 1, 2, 3
"""The classes, and work ahead of turns, which takes the rest of a step (section 3)."""


@dataclass(frozen=True, slots=True)
class Weights:
    """One stage's P_safe (s), alpha and beta; None: not known."""

    safe_s: float
    alpha: float | None
    beta: float | None


def weights(stage: str, params: OrderParams) -> Weights:
    """Return the stage's weights; without `kv_aware` the weight of KV pressure is 0."""
    if stage == "talker":
        of_stage = Weights(params.talker_safe_s, params.talker_alpha, params.talker_beta)
    else:
        of_stage = Weights(params.thinker_safe_s, params.thinker_alpha, params.thinker_beta)
    return of_stage if params.kv_aware else replace(of_stage, beta=0.0)


def assess(stage: str, request: SpeechView, now: float, params: OrderParams) -> tuple[int, float, float]:
    """Return class, buffer P_i^s and delivered buffer of a request, the buffers in s of audio (0 before first audio).

    The talker's buffer is generated (or delivered) audio minus playback; the thinker's is the text tokens the talker
    has not taken, times the session's seconds of speech per token; `cumulative` adds the talker's.

    U1 before first audio: tested first, as a buffer of 0 would look like an underrun. U0 up to P_safe, and a talker
    request short of *delivered* audio, since frames of an unfinished chunk cannot be played. Else U2. A text-only reply
    has no buffer: U1 until its first token, U2 afterwards. Text that outlasts the audio has none either: no talker
    takes it, so playback would never consume such a lead.
    """
    progress, session = request.progress, request.session
    if request.speculative:
        return AHEAD, 0.0, 0.0
    if not progress.spoken or progress.voiced:
        return (U2 if progress.text_tokens else U1), 0.0, 0.0
    if session.first_audio_s is None:
        return U1, 0.0, 0.0
    played = session.played(now)
    delivered = session.audio_sent_s - played
    ahead = delivered if params.buffer_basis == "delivered" else progress.frames * progress.frame_s - played
    if stage == "talker":
        urgent = ahead <= params.talker_safe_s or delivered <= params.delivered_safe_s
        return (U0 if urgent else U2), ahead, delivered
    text_ahead = (progress.text_tokens - progress.text_consumed) * session.speech_s_per_token
    if params.thinker_buffer == "cumulative":
        text_ahead += ahead
    return (U0 if text_ahead <= params.thinker_safe_s else U2), text_ahead, delivered


def barge_in_exposure(buffer: float, safe_s: float) -> float:
    """Return C_barge: eq. 2."""
    return (buffer - safe_s) / safe_s if buffer > safe_s else 0.0


def utility(exposure: float, held_share: float, occupied_share: float, weights: Weights) -> float | None:
    """Return U_i = beta * K_i * R_occ - alpha * C_barge: eqs. 1 and 3, with K_i and R_occ as shares of the allocatable
    blocks.

    Blocks that a request refers to are occupied; idle cached ones can be given out. None when a weight is not known.
    """
    if weights.alpha is None or weights.beta is None:
        return None
    return weights.beta * held_share * occupied_share - weights.alpha * exposure


class Batch:
    """Requests that share steps of a stage, added one by one. A prompt counts as one token: it comes once.

    It compares the audio that the stage makes with the audio that is heard, which decides what may wait. With n
    requests that gain a seconds of audio each in a step of S seconds, a stage makes n a / S seconds of audio a second.
    Every listener hears one a second. A step has a constant part: the fewer requests share it, the shorter it is and
    the less audio it makes, so a step that is kept short for one request costs the others audio.
    """

    def __init__(
        self, stage: str, step_s: Callable[[StepWork], float | None], requests: Iterable[SpeechView] = ()
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
        """Return the seconds of their step, with one more; 0 before the stage has measured its steps."""
        work = self._work if more is None else self._work.plus(1, more.computed)
        return self._predict(work) or 0.0

    def made(self, more: SpeechView | None = None) -> float:
        """Return the seconds of audio per second that they make, with one more; inf if steps take no time."""
        audio_s = self._audio_s + (0.0 if more is None else more.audio_s_of_step(self._stage))
        step_s = self.step_s(more)
        return audio_s / step_s if step_s else math.inf
