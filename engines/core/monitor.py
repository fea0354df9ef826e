"""What the server knows of each listener, from the events the client sends and from its own egress, and nothing else.

LiveServe's runtime monitor (paper section 3). Played time is extrapolated between playback acks, so what a policy sees
is as stale as the client's telemetry; the client's true clock is never read.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

EMA_WEIGHT = 0.3
"""Weight of the newest observation in per-session moving averages. The paper gives none; ours."""


class Phase(StrEnum):
    IDLE = "idle"
    USER_SPEAKING = "user_speaking"
    AWAIT_FIRST_AUDIO = "await_first_audio"
    PLAYING = "playing"


@dataclass(slots=True)
class SessionView:
    """One session as the server sees it. Times in s on the run's clock, durations in s; None = not known (yet).

    ``epoch`` counts turns begun; acks that carry an older one are stale. ``speech_s_per_token`` is a moving average of
    the seconds of speech a text token became, over the session's finished replies.
    """

    session: int
    speech_s_per_token: float
    phase: Phase = Phase.IDLE
    epoch: int = -1
    speech_start_s: float | None = None
    speech_end_s: float | None = None
    first_audio_s: float | None = None
    audio_sent_s: float = 0.0
    played_s: float = 0.0
    ack_s: float | None = None
    playing: bool = False
    barge_in_s: float | None = None
    playback_end_s: float | None = None
    reply_gap_s: float | None = None
    acks_under_way: "deque[Ack]" = field(default_factory=deque)

    def played(self, now: float) -> float:
        """Seconds heard by ``now``: the last ack, extrapolated at normal speed while playing, up to what was sent."""
        if self.ack_s is None:
            return 0.0
        played = self.played_s + (now - self.ack_s if self.playing else 0.0)
        return min(played, self.audio_sent_s)

    def telemetry_ok(self, now: float, timeout_s: float) -> bool:
        """Whether playback is reported: an ack within ``timeout_s``, or first audio too recent to expect one."""
        last = self.ack_s if self.ack_s is not None else self.first_audio_s
        return last is None or now - last <= timeout_s


class Ack(NamedTuple):
    """A playback report: it reaches the server at ``at_s``."""

    at_s: float
    epoch: int
    played_s: float
    playing: bool


class Monitor:
    """Folds client events and egress into one ``SessionView`` per session.

    Acks are many and looked at seldom: they are queued and take effect, in order and at their own time, when
    something else happens to the session or somebody looks at it.
    """

    def __init__(self, speech_s_per_token: float) -> None:
        self._prior = speech_s_per_token
        self.sessions: dict[int, SessionView] = {}
        self.stale_acks = 0

    def view(self, session: int, now: float) -> SessionView:
        """What is known of the session at ``now`` (s)."""
        view = self.sessions.get(session)
        if view is None:
            view = self.sessions[session] = SessionView(session, self._prior)
        acks = view.acks_under_way
        while acks and acks[0].at_s <= now:
            at_s, epoch, played_s, playing = acks.popleft()
            if epoch != view.epoch or view.phase is not Phase.PLAYING:
                self.stale_acks += 1
            else:
                view.played_s, view.ack_s, view.playing = played_s, at_s, playing
        return view

    def close(self, session: int) -> None:
        self.sessions.pop(session, None)

    def speech_start(self, session: int, now: float) -> None:
        view = self.view(session, now)
        view.phase, view.speech_start_s = Phase.USER_SPEAKING, now

    def turn_committed(self, session: int, epoch: int, now: float) -> None:
        """The user's turn is complete: everything about the previous reply's playback is over."""
        view = self.view(session, now)
        if view.playback_end_s is not None:
            gap = now - view.playback_end_s
            view.reply_gap_s = gap if view.reply_gap_s is None else _ema(view.reply_gap_s, gap)
        view.phase, view.epoch, view.speech_end_s = Phase.AWAIT_FIRST_AUDIO, epoch, now
        view.first_audio_s = view.ack_s = view.playback_end_s = None
        view.audio_sent_s = view.played_s = 0.0
        view.playing = False

    def audio_sent(self, session: int, epoch: int, audio_s: float, now: float) -> None:
        """Egress of ``audio_s`` seconds of audio to the client."""
        view = self.view(session, now)
        if epoch != view.epoch:
            return
        if view.first_audio_s is None:
            view.phase, view.first_audio_s = Phase.PLAYING, now
        view.audio_sent_s += audio_s

    def playback_ack(self, session: int, ack: Ack) -> None:
        """The client reports seconds heard and whether its player runs or waits for audio."""
        self.sessions[session].acks_under_way.append(ack)

    def playback_done(self, session: int, epoch: int, now: float) -> None:
        view = self.view(session, now)
        if epoch == view.epoch and view.phase is Phase.PLAYING:
            view.phase, view.playback_end_s, view.playing = Phase.IDLE, now, False

    def barge_in(self, session: int, now: float) -> None:
        """The user speaks over the reply: it ends here, and so does its playback."""
        view = self.view(session, now)
        view.phase, view.playing = Phase.USER_SPEAKING, False
        view.barge_in_s = view.speech_start_s = view.playback_end_s = now

    def reply_spoken(self, session: int, audio_s: float, text_tokens: int, now: float) -> None:
        """A reply was generated to its end: learn how long this session's text tokens take to speak."""
        view = self.view(session, now)
        view.speech_s_per_token = _ema(view.speech_s_per_token, audio_s / text_tokens)


def _ema(old: float, new: float) -> float:
    return old + EMA_WEIGHT * (new - old)
