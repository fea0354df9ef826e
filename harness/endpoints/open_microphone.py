"""A microphone that never closes: packets of one length on absolute deadlines, silence among them, and the sounds of a
trace mixed in from the very sample at which they begin.

Packet k is due when it has been captured, at the microphone's begin + (k + 1) packets.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from harness.endpoints.dialects.dialect import Dialect
from harness.endpoints.logs import SendLog
from workloads.columns.duplex_events import TAKES_FLOOR
from workloads.generators.content import event_pcm, pcm_for
from workloads.trace import Trace, Turn

KEPT_BYTES = 2 * 2**30
PREPARE_S = 60.0
"""Sound made before the run: at most this length and this time; the rest is made when it begins, which takes some ms.
[chosen]"""


class Tape(Protocol):
    """Keeps what the microphone heard (`harness.endpoints.call_recorder`)."""

    def heard(self, begin_s: float, pcm: bytes) -> None: ...


class Sounds:
    """The sound of users and of their surroundings in `trace`, int16, shape (samples,), at `rate` samples/s."""

    def __init__(self, trace: Trace, rate: int) -> None:
        self._trace, self._rate = trace, rate
        self._made: dict[tuple[int, int, bool], np.ndarray] = {}

    def prepare(self) -> None:
        """Make the sounds within the limits of memory and time. UserError when a recording is missing or has
        changed."""
        begun, kept = time.monotonic(), 0
        for session in self._trace.sessions:
            for turn in session.turns:
                for is_turn in (True, False) if _beside(turn) else (True,):
                    made = self._make(turn, is_turn)
                    self._made[turn.session, turn.turn, is_turn] = made
                    kept += made.nbytes
                    if kept > KEPT_BYTES or time.monotonic() - begun > PREPARE_S:
                        return

    def of(self, turn: Turn, is_turn: bool) -> np.ndarray:
        """Return its speech, or the sound of its event."""
        made = self._made.get((turn.session, turn.turn, is_turn))
        return self._make(turn, is_turn) if made is None else made

    def _make(self, turn: Turn, is_turn: bool) -> np.ndarray:
        pcm = (pcm_for if is_turn else event_pcm)(self._trace, turn, self._rate)
        seconds = (turn.audio_s if is_turn else turn.microphone.event_s) or 0.0
        return np.frombuffer(b"".join(pcm), "<i2")[: round(seconds * self._rate)]


def _beside(turn: Turn) -> bool:
    """Return whether the turn's event is a sound of its own, not the next turn."""
    return turn.microphone.event is not None and turn.microphone.event not in TAKES_FLOOR


class OpenMicrophone:
    """The microphone of one session, open from `begin_s` on. `send` takes a message; times on the loop's clock."""

    def __init__(
        self,
        dialect: Dialect,
        chunk_s: float,
        send: Callable[[bytes], None],
        sends: SendLog,
        session: int,
        begin_s: float,
        tape: Tape | None = None,
    ) -> None:
        self._append, self._rate = dialect.append, dialect.input_rate
        self._samples = max(1, round(chunk_s * self._rate))
        self._chunk_s = self._samples / self._rate
        self._silent = bytes(2 * self._samples)
        self._silence = dialect.append(self._silent)
        self._send, self._sends, self._session, self._tape = send, sends, session, tape
        self._loop = asyncio.get_running_loop()
        self._sounds: list[tuple[int, np.ndarray]] = []
        self._begin_s = self._floor_s = begin_s
        self._next = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self, ready_s: float) -> None:
        """Send the due packets and go on. Packets captured before the session was ready are late from `ready_s`."""
        self._floor_s = max(self._begin_s, ready_s)
        self._say()

    def hear(self, sound: np.ndarray, begin_s: float) -> None:
        """Hear `sound` from `begin_s` on, without the part that should have been sent by now."""
        self._sounds.append((round((begin_s - self._begin_s) * self._rate), sound))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _say(self) -> None:
        """Send all due packets."""
        self._timer = None
        now = self._loop.time()
        while (due_s := self._begin_s + (self._next + 1) * self._chunk_s) <= now:
            pcm = self._captured(self._next * self._samples)
            self._send(self._silence if pcm is self._silent else self._append(pcm))
            now = self._loop.time()
            self._sends.add("audio", self._session, max(due_s, self._floor_s), now)
            if self._tape is not None:
                self._tape.heard(due_s - self._chunk_s, pcm)
            self._next += 1
        self._timer = self._loop.call_at(due_s, self._say)

    def _captured(self, begin: int) -> bytes:
        """Return the packet from sample `begin` on."""
        if not self._sounds:
            return self._silent
        end = begin + self._samples
        mixed = np.zeros(self._samples, np.int32)
        for at, sound in self._sounds:
            here = sound[max(0, begin - at) : max(0, end - at)]
            start = max(0, at - begin)
            mixed[start : start + len(here)] += here
        self._sounds = [(at, sound) for at, sound in self._sounds if at + len(sound) > end]
        return np.clip(mixed, -32768, 32767).astype("<i2").tobytes()
