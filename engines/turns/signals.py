"""Live signals: clients' reports of their listeners while stock vLLM serves them, folded into a `Monitor`.

The verbs are the gateway's. Sessions have names: a request belongs to the session that it names, or is one of its own.
A session without a reported turn is a plain text request.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from engines.turns.monitor import Ack, Monitor, SessionView
from workloads.errors import UserError, validate

NEEDS = {
    "speech_start": (),
    "turn_committed": ("turn",),
    "audio_sent": ("turn", "seconds"),
    "playback_ack": ("turn", "seconds"),
    "playback_done": ("turn",),
    "barge_in": (),
    "close": (),
}
"""The verbs, and the fields that each needs besides the session."""


class Signal(BaseModel):
    """One report. `seconds`: of audio, sent since the last report (audio_sent) or heard in all (playback_ack)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    verb: Literal[
        "speech_start", "turn_committed", "audio_sent", "playback_ack", "playback_done", "barge_in", "close"
    ] = Field(description="what has happened")
    session: str = Field(min_length=1, description="the session's name, or the id of its only request")
    turn: int | None = Field(
        default=None, ge=0, le=1_000_000_000, description="number of the session's turn, counted from 0"
    )
    seconds: float | None = Field(default=None, ge=0, le=1e10, description="seconds of audio")
    playing: bool = Field(default=True, description="whether the player runs or waits for audio")

    @model_validator(mode="after")
    def _complete(self) -> "Signal":
        for field in NEEDS[self.verb]:
            if getattr(self, field) is None:
                raise ValueError(f"{self.verb} needs {field!r}; add it")
        return self

    @classmethod
    def of(cls, values: Any) -> "Signal":
        """Read a report. UserError, in one sentence, for a wrong one."""
        if not isinstance(values, dict):
            raise UserError("a signal is a JSON object with the fields 'verb' and 'session'; give both.")
        return validate(cls, values, "signal")


class Signals:
    """The sessions that clients of one engine have reported, by name. Times in s on the engine's clock."""

    def __init__(self, speech_s_per_token: float) -> None:
        self.monitor = Monitor(speech_s_per_token)
        self._numbers: dict[str, int] = {}
        self._opened = 0
        self._unreported = SessionView(-1, speech_s_per_token)

    def number(self, session: str) -> int:
        """Return the session's number in views and in eviction keys; -1 before its first report."""
        return self._numbers.get(session, -1)

    def view(self, session: str, now: float) -> SessionView:
        number = self._numbers.get(session)
        return self._unreported if number is None else self.monitor.view(number, now)

    def take(self, signal: Signal, now: float) -> None:
        if signal.verb == "close":
            number = self._numbers.pop(signal.session, None)
            if number is not None:
                self.monitor.close(number)
            return
        if signal.session not in self._numbers:
            self._numbers[signal.session] = self._opened
            self._opened += 1
        number, monitor = self._numbers[signal.session], self.monitor
        turn, seconds = signal.turn or 0, signal.seconds or 0.0
        match signal.verb:
            case "speech_start":
                monitor.speech_start(number, now)
            case "turn_committed":
                monitor.turn_committed(number, turn, now)
            case "audio_sent":
                monitor.audio_sent(number, turn, seconds, now)
            case "playback_ack":
                monitor.view(number, now)
                monitor.playback_ack(number, Ack(now, turn, seconds, signal.playing))
            case "playback_done":
                monitor.playback_done(number, turn, now)
            case "barge_in":
                monitor.barge_in(number, now)

    def spoken(self, session: str, text_tokens: int, now: float) -> None:
        """Learn the seconds per token of this session from a reply of `text_tokens` that was spoken to its end."""
        view = self.view(session, now)
        if text_tokens and view.audio_sent_s:
            self.monitor.reply_spoken(view.session, view.audio_sent_s, text_tokens, now)
