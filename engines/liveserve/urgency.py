"""How urgent a request is: its playback buffer, its class U0/U1/U2, and the utility that ranks U2 (paper section 4.1).

Buffers are in seconds of audio at every stage, so that eq. 2 has no unit and P_safe compares between stages.
"""

from dataclasses import dataclass

from engines.core.policy import RequestView
from engines.liveserve.params import Params

U0, U1, U2 = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Weights:
    """One stage's P_safe (s), alpha and beta."""

    safe_s: float
    alpha: float
    beta: float


def weights(stage: str, params: Params) -> Weights:
    if stage == "talker":
        return Weights(params.talker_safe_s, params.talker_alpha, params.talker_beta)
    return Weights(params.thinker_safe_s, params.thinker_alpha, params.thinker_beta)


def delivered_s(request: RequestView, now: float) -> float:
    """Audio at the client that it has not played yet, s."""
    return request.session.audio_sent_s - request.session.played(now)


def buffer_s(stage: str, request: RequestView, now: float, params: Params) -> float:
    """P_i^s: what this stage is ahead of its consumer, s of audio; 0 before first audio.

    Talker: generated (or delivered) audio minus playback. Thinker: text tokens the talker has not taken, times the
    session's seconds of speech per token; ``cumulative`` adds the talker's buffer.
    """
    progress, session = request.progress, request.session
    if session.first_audio_s is None:
        return 0.0
    if params.buffer_basis == "delivered":
        talker = delivered_s(request, now)
    else:
        talker = progress.frames * progress.frame_s - session.played(now)
    if stage == "talker":
        return talker
    waiting_text = (progress.text_tokens - progress.text_consumed) * session.speech_s_per_token
    return waiting_text + talker if params.thinker_buffer == "cumulative" else waiting_text


def classify(stage: str, request: RequestView, buffer: float, now: float, params: Params) -> int:
    """U1 before first audio (tested first: a buffer of 0 would look like an underrun), U0 up to P_safe, else U2.

    A text-only reply has no buffer: U1 until its first token, U2 afterwards. Generated frames of an unfinished chunk
    cannot be played, so a talker request short of *delivered* audio is U0 as well.
    """
    if not request.progress.spoken:
        return U2 if request.progress.text_tokens else U1
    if request.session.first_audio_s is None:
        return U1
    if buffer <= weights(stage, params).safe_s:
        return U0
    if stage == "talker" and delivered_s(request, now) <= params.delivered_safe_s:
        return U0
    return U2


def barge_in_exposure(buffer: float, safe_s: float) -> float:
    """C_barge: eq. 2."""
    return max(0.0, buffer - safe_s) / safe_s


def utility(exposure: float, held_share: float, occupied_share: float, of: Weights) -> float:
    """U_i = beta * K_i * R_occ - alpha * C_barge: eqs. 1 and 3, with K_i as a share of the allocatable blocks."""
    return of.beta * held_share * occupied_share - of.alpha * exposure
