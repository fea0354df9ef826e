"""The time when a session's KV is needed again: the end of playback plus the reply gap (paper section 5.1, eq. 4).

Eq. 4 counts from now, T_next = T_play + T_reply; this module uses the absolute time N = end of playback + T_reply,
which gives the same order and does not change while time passes. All inputs come from the monitor: the session's own
values, else the workload's, else a constant.
"""

from typing import TypeVar

from engines.turns.monitor import Median, Phase, SessionView

REPLY_AUDIO_S = 20.0
"""[chosen] length of a reply while no session has finished one: a few spoken sentences."""

REPLY_GAP_S = 5.0
"""[chosen] from the end of playback to the end of the next turn while none has come: a pause and an utterance."""

UTTERANCE_S = 3.0
"""[chosen] length of the user's turn while none has been completed: one sentence."""


Chosen = TypeVar("Chosen", float, None)


def next_use_s(view: SessionView, now: float, telemetry_timeout_s: float) -> float | None:
    """Return N_i, s on the run's clock, if nobody interrupts; None if it is unknown.

    Before first audio it is known only if the session or another one has spoken a reply. A listener who takes longer
    than predicted is due at any moment: N stays in the past.
    """
    gap_s = _expected(view.reply_gap_s, view.workload.reply_gap, REPLY_GAP_S)
    match view.phase:
        case Phase.USER_SPEAKING:
            return speech_end_s(view, now)
        case Phase.PLAYING:
            return playback_end_s(view, now, telemetry_timeout_s) + gap_s
        case Phase.AWAIT_FIRST_AUDIO:
            reply_s = _expected(view.reply_audio_s, view.workload.reply_audio, None)
            return None if reply_s is None else now + reply_s + gap_s
    return None if view.playback_end_s is None else view.playback_end_s + gap_s


def playback_end_s(view: SessionView, now: float, telemetry_timeout_s: float) -> float:
    """Return the end of the reply's playback: sent audio and the expected remainder of an unfinished reply, played on
    from the last report. Without reports it counts from first audio, so that longer replies end later."""
    total_s = view.audio_sent_s
    if not view.audio_complete:
        total_s = max(total_s, _expected(view.reply_audio_s, view.workload.reply_audio, REPLY_AUDIO_S))
    if view.last_ack_s is None or not view.telemetry_ok(now, telemetry_timeout_s):
        assert view.first_audio_s is not None
        return max(now, view.first_audio_s + total_s)
    return now + max(0.0, total_s - view.played(now))


def speech_end_s(view: SessionView, now: float) -> float:
    """Return the expected end of the user's speech; now, if it has taken longer than expected."""
    length_s = _expected(view.utterance_s, view.workload.utterance, UTTERANCE_S)
    return max(now, (now if view.speech_start_s is None else view.speech_start_s) + length_s)


def _expected(session_s: float | None, workload: Median, chosen_s: Chosen) -> float | Chosen:
    if session_s is not None:
        return session_s
    return chosen_s if workload.value is None else workload.value
