"""The server's knowledge of each listener, only from the events the client sends and from its own egress.

LiveServe's runtime monitor (paper section 3). Played time is extrapolated between playback acks, so a policy's view is
as stale as the client's telemetry. The client's true clock is never read.
"""

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import NamedTuple, Protocol

EMA_WEIGHT = 0.3
"""Weight of the newest observation in per-session moving averages. The paper gives none; ours."""

CORRECTION_S = 0.250
"""[chosen] a playback report that moves the end of playback by more than this is news."""

REMEMBERED = 255
"""[chosen] newest observations in a workload's medians."""


class Median:
    """The median of the newest observations; None before the first. Reading it is cheap, adding costs
    O(observations)."""

    def __init__(self) -> None:
        self._newest: deque[float] = deque()
        self._sorted: list[float] = []

    @property
    def value(self) -> float | None:
        return self._sorted[len(self._sorted) // 2] if self._sorted else None

    def add(self, observation: float) -> None:
        self._newest.append(observation)
        insort(self._sorted, observation)
        if len(self._newest) > REMEMBERED:
            del self._sorted[bisect_left(self._sorted, self._newest.popleft())]


@dataclass(slots=True)
class Workload:
    """Statistics of all sessions of one server: medians in s, for a session without any history, and counts of replies
    whose playback began and of replies that their listener interrupted."""

    utterance: Median = field(default_factory=Median)
    reply_audio: Median = field(default_factory=Median)
    reply_gap: Median = field(default_factory=Median)
    heard: int = 0
    interrupted: int = 0

    @property
    def interrupted_share(self) -> float:
        """Share of the replies heard to begin that were interrupted; 0 before the first reply."""
        return self.interrupted / self.heard if self.heard else 0.0


class Phase(StrEnum):
    IDLE = "idle"
    USER_SPEAKING = "user_speaking"
    AWAIT_FIRST_AUDIO = "await_first_audio"
    PLAYING = "playing"


@dataclass(slots=True)
class SessionView:
    """One session as the server sees it. Times in s on the run's clock, durations in s; None = not known (yet).

    `epoch` counts turns begun; acks that carry an older one are stale. `audio_complete`: all of the reply's audio has
    been sent. `last_ack_s`: when the newest ack arrived. `played_from_s`: when its playback would have begun without
    pauses, by the last report that moved it.
    Moving averages over the session: `speech_s_per_token`, seconds of speech per text token; `utterance_s` and
    `reply_audio_s`, lengths of the user's turns and of replies generated to their end; `reply_gap_s`, from the end of
    playback to the end of the user's next turn (paper section 5.1). `workload`: the same over all sessions.
    `spoken_over`: the phase that the user speaks into, until that becomes a turn.
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
    last_ack_s: float | None = None
    playing: bool = False
    barge_in_s: float | None = None
    playback_end_s: float | None = None
    audio_complete: bool = False
    played_from_s: float | None = None
    utterance_s: float | None = None
    reply_audio_s: float | None = None
    reply_gap_s: float | None = None
    workload: Workload = field(default_factory=Workload)
    acks_under_way: "deque[Ack]" = field(default_factory=deque)
    reports: "Reports | None" = None
    reports_epoch: int = -1
    spoken_over: Phase | None = None

    def played(self, now: float) -> float:
        """Return the seconds heard by `now`: the last ack, extrapolated at normal speed while playing, up to the sent
        audio."""
        if self.last_ack_s is None:
            return 0.0
        played = self.played_s + (now - self.last_ack_s if self.playing else 0.0)
        return min(played, self.audio_sent_s)

    @property
    def heard(self) -> Phase:
        """The phase, as if nobody spoke over it."""
        return self.spoken_over or self.phase

    def telemetry_ok(self, now: float, timeout_s: float) -> bool:
        """Return True if playback is reported: an ack within `timeout_s`, or first audio too recent to expect one."""
        last = self.last_ack_s if self.last_ack_s is not None else self.first_audio_s
        return last is None or now - last <= timeout_s


class Ack(NamedTuple):
    """A playback report: it reaches the server at `at_s`."""

    at_s: float
    epoch: int
    played_s: float
    playing: bool


class Reports(Protocol):
    """The playback reports of one reply, which can be read instead of being sent one by one; `first_s`: the time of the
    first unread report."""

    first_s: float

    def read(self, until_s: float) -> list[tuple[float, float, bool]]:
        """Return the unread reports sent by `until_s`: arrival time (s), seconds heard, whether the player runs."""
        ...


class Monitor:
    """Folds client events and egress into one `SessionView` per session.

    Acks are many and seldom read: they are queued and take effect, in order and at their own time, at the session's
    next event or view.
    """

    def __init__(self, speech_s_per_token: float) -> None:
        self._prior = speech_s_per_token
        self.workload = Workload()
        self.sessions: dict[int, SessionView] = {}
        self.stale_acks = 0

    def view(self, session: int, now: float) -> SessionView:
        """Return the view of the session at `now` (s), with every report and ack that has arrived by then."""
        view = self.sessions.get(session)
        if view is None:
            view = self.sessions[session] = SessionView(session, self._prior, workload=self.workload)
        reports, acks = view.reports, view.acks_under_way
        if reports is not None and reports.first_s <= now:
            self._read(view, now)
        while acks and acks[0].at_s <= now:
            at_s, epoch, played_s, playing = acks.popleft()
            if epoch != view.epoch or view.heard is not Phase.PLAYING:
                self.stale_acks += 1
            else:
                view.played_s, view.last_ack_s, view.playing = played_s, at_s, playing
        return view

    def reports(self, session: int, epoch: int, reports: Reports, now: float) -> None:
        """Let `reports` report the session's playback from now on."""
        view = self.view(session, now)
        if view.reports is not None:
            self._read(view, now)
        view.reports, view.reports_epoch = reports, epoch

    def _read(self, view: SessionView, now: float) -> None:
        assert view.reports is not None
        for at_s, played_s, playing in view.reports.read(now):
            view.acks_under_way.append(Ack(at_s, view.reports_epoch, played_s, playing))

    def close(self, session: int) -> None:
        self.sessions.pop(session, None)

    def speech_start(self, session: int, now: float) -> None:
        view = self.view(session, now)
        if view.phase is not Phase.USER_SPEAKING:
            view.spoken_over = view.phase
        view.phase, view.speech_start_s = Phase.USER_SPEAKING, now

    def speech_ignored(self, session: int, now: float) -> None:
        """Restore the session as if nobody had spoken: the sound that began was no turn."""
        view = self.view(session, now)
        view.phase, view.spoken_over = view.heard, None

    def turn_committed(self, session: int, epoch: int, now: float) -> None:
        """Note the user's complete turn: the previous reply's playback is over."""
        view = self.view(session, now)
        if view.phase is Phase.USER_SPEAKING and view.speech_start_s is not None:
            utterance = now - view.speech_start_s
            view.utterance_s = _ema(view.utterance_s, utterance)
            self.workload.utterance.add(utterance)
        if view.playback_end_s is not None and view.playback_end_s != view.barge_in_s:
            gap = now - view.playback_end_s
            view.reply_gap_s = _ema(view.reply_gap_s, gap)
            self.workload.reply_gap.add(gap)
        view.phase, view.epoch, view.speech_end_s = Phase.AWAIT_FIRST_AUDIO, epoch, now
        view.spoken_over = None
        view.first_audio_s = view.last_ack_s = view.playback_end_s = view.played_from_s = None
        view.audio_sent_s = view.played_s = 0.0
        view.playing = view.audio_complete = False

    def audio_sent(self, session: int, epoch: int, audio_s: float, now: float) -> None:
        view = self.view(session, now)
        if epoch != view.epoch:
            return
        if view.first_audio_s is None:
            view.phase, view.first_audio_s, view.spoken_over = Phase.PLAYING, now, None
            view.played_from_s = now
            self.workload.heard += 1
        view.audio_sent_s += audio_s

    def playback_ack(self, session: int, ack: Ack) -> bool:
        """Take in the client's report of seconds heard and of its player's state (running, or waiting for audio).

        Returns True if playback will end, once it arrives, at another time than expected.
        """
        view = self.sessions[session]
        if view.reports is not None:
            self._read(view, -inf)
        view.acks_under_way.append(ack)
        begun_s, before_s = ack.at_s - ack.played_s, view.played_from_s
        if ack.epoch != view.epoch or before_s is None or abs(begun_s - before_s) <= CORRECTION_S:
            return False
        view.played_from_s = begun_s
        return True

    def patience_s(self, session: int, ack: Ack) -> float:
        """Return how long the player can stand still after this report before its end moves by `CORRECTION_S`."""
        from_s = self.sessions[session].played_from_s
        return 0.0 if from_s is None else max(0.0, from_s + CORRECTION_S - (ack.at_s - ack.played_s))

    def playback_done(self, session: int, epoch: int, now: float) -> None:
        view = self.view(session, now)
        if epoch == view.epoch and view.heard is Phase.PLAYING:
            view.playback_end_s, view.playing = now, False
            if view.spoken_over is None:
                view.phase = Phase.IDLE
            else:
                view.spoken_over = Phase.IDLE

    def barge_in(self, session: int, now: float) -> None:
        """Note that the user speaks over the reply: it ends now, and so does its playback."""
        view = self.view(session, now)
        self.workload.interrupted += view.first_audio_s is not None
        view.phase, view.playing, view.spoken_over = Phase.USER_SPEAKING, False, None
        view.barge_in_s = view.speech_start_s = view.playback_end_s = now

    def reply_spoken(self, session: int, audio_s: float, text_tokens: int, now: float) -> None:
        """Learn from a completely generated reply: the length of this session's replies and the seconds per token."""
        view = self.view(session, now)
        view.speech_s_per_token = _ema(view.speech_s_per_token, audio_s / text_tokens)
        view.reply_audio_s = _ema(view.reply_audio_s, audio_s)
        view.audio_complete = True
        self.workload.reply_audio.add(audio_s)


def _ema(old: float | None, new: float) -> float:
    return new if old is None else old + EMA_WEIGHT * (new - old)
