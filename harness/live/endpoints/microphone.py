"""The users' speech, as messages that are ready before they are due, and sent on absolute deadlines.

A piece of audio is due when it has been captured: piece k of a turn at its begin + (k + 1) pieces, the last, which may
be shorter, at the exact end of the speech. Pieces that sound alike are one message for all sessions. Users of workloads
that say how long they speak, but not what, say the end of a sentence of that length.
"""

import asyncio
import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.live.endpoints.dialects.dialect import Dialect
from harness.live.endpoints.logs import SendLog
from workloads.audio.voice import spoken
from workloads.generators.content import pcm_for, tells_what_is_said
from workloads.trace import Trace, Turn

ENCODED_BYTES = 4 * 2**30
"""Messages kept ready; a turn beyond is encoded when its user begins, which takes about a ms. [chosen]"""


class SpeechMessages:
    """The messages of each spoken turn of `trace` in `dialect`, `chunk_s` seconds of audio each."""

    def __init__(self, trace: Trace, dialect: Dialect, chunk_s: float) -> None:
        self._trace, self._dialect = trace, dialect
        self._told = tells_what_is_said(trace)
        self._samples = max(1, round(chunk_s * dialect.input_rate))
        self.chunk_s = self._samples / dialect.input_rate
        self.silence = dialect.append(bytes(2 * self._samples))
        self._turns: dict[tuple[int, int], list[bytes]] = {}
        self._messages: dict[bytes, bytes] = {}
        self._kept = 0

    def encode(self) -> None:
        """Encode as many messages as fit into the limit. UserError when a recording is missing or has changed."""
        for session in self._trace.sessions:
            for turn in session.turns:
                if turn.audio_s and self._kept < ENCODED_BYTES:
                    self._turns[turn.session, turn.turn] = self._encoded(turn, keep=True)

    def of(self, turn: Turn) -> list[bytes]:
        """Return one message for each piece of the turn's audio."""
        return self._turns.get((turn.session, turn.turn)) or self._encoded(turn, keep=False)

    def speech(
        self, turn: Turn, begin_s: float, send: Callable[[bytes], None], sends: SendLog, session: int
    ) -> "Speech":
        """Return the speech of a spoken turn that begins at `begin_s`."""
        assert turn.audio_s is not None
        return Speech(self.of(turn), self.chunk_s, begin_s, begin_s + turn.audio_s, send, sends, session)

    def _encoded(self, turn: Turn, keep: bool) -> list[bytes]:
        assert turn.audio_s is not None
        rate, size = self._dialect.input_rate, 2 * self._samples
        wanted = 2 * round(turn.audio_s * rate)
        if self._told:
            pcm = b"".join(pcm_for(self._trace, turn, rate))[:wanted]
        else:
            pcm = spoken(turn.audio_s, rate).astype("<i2", copy=False).tobytes()
        return [self._message(pcm[at : at + size], keep) for at in range(0, len(pcm), size)]

    def _message(self, pcm: bytes, keep: bool) -> bytes:
        key = hashlib.blake2b(pcm, digest_size=16).digest()
        message = self._messages.get(key)
        if message is None:
            message = self._dialect.append(pcm)
            if keep:
                self._messages[key] = message
                self._kept += len(message)
        return message


@dataclass(eq=False, slots=True)
class Speech:
    """Sends the audio of one turn. `send` takes a message; `begin_s` and `end_s` on the loop's clock."""

    messages: list[bytes]
    chunk_s: float
    begin_s: float
    end_s: float
    send: Callable[[bytes], None]
    sends: SendLog
    session: int
    sent_s: float = field(init=False, default=math.nan)
    """Time of the newest send, s. Taken before the send: after it the answer may arrive first."""
    _loop: asyncio.AbstractEventLoop = field(init=False, default_factory=asyncio.get_running_loop)
    _next: int = field(init=False, default=0)
    _due_s: float = field(init=False)
    _floor_s: float = field(init=False)
    _timer: asyncio.TimerHandle | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._due_s, self._floor_s = self._due_of(0), self.begin_s

    def start(self, ready_s: float) -> None:
        """Send the due pieces and go on. Pieces that were due before the session was ready are late from `ready_s`."""
        self._floor_s = max(self._floor_s, ready_s)
        self._say()

    def finish(self) -> None:
        """Send the remaining pieces: the turn is over."""
        self.stop()
        while self._next < len(self.messages):
            self._say_next()

    def stop(self) -> None:
        """Say no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due_of(self, k: int) -> float:
        return min(self.begin_s + (k + 1) * self.chunk_s, self.end_s)

    def _say(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._next < len(self.messages):
            if self._due_s > now:
                self._timer = self._loop.call_at(self._due_s, self._say)
                return
            now = self._say_next()

    def _say_next(self) -> float:
        due_s = self._due_s
        self.sent_s = self._loop.time()
        self.send(self.messages[self._next])
        now = self._loop.time()
        self.sends.add("audio", self.session, due_s if due_s > self._floor_s else self._floor_s, now)
        self._next += 1
        self._due_s = self._due_of(self._next)
        return now


@dataclass(eq=False)
class Silence:
    """A microphone that stays open between turns, for servers that detect the end of speech themselves."""

    message: bytes
    chunk_s: float
    send: Callable[[bytes], None]
    sends: SendLog
    session: int
    _loop: asyncio.AbstractEventLoop = field(init=False, default_factory=asyncio.get_running_loop)
    _timer: asyncio.TimerHandle | None = field(init=False, default=None)

    def start(self, begin_s: float) -> None:
        """Send silence from `begin_s` on."""
        self.stop()
        self._due_s = begin_s + self.chunk_s
        self._timer = self._loop.call_at(self._due_s, self._say)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _say(self) -> None:
        self.send(self.message)
        self.sends.add("audio", self.session, self._due_s, self._loop.time())
        self._due_s += self.chunk_s
        self._timer = self._loop.call_at(self._due_s, self._say)
